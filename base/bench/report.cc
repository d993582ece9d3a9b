#include "base/bench/report.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/file.h"
#include "base/status_util.h"
#include "base/version.h"
#include "nlohmann/json.hpp"

namespace skein {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kColumns[] = "%-56s %10s %10s %10s %10s %11s %6s\n";

// "580.95.05", of the first line of what NVIDIA's driver tells; "" where there is none.
std::string DriverVersion() {
  const std::string text = ReadFileOrEmpty("/proc/driver/nvidia/version");
  const std::string line = text.substr(0, text.find('\n'));
  for (const absl::string_view word : absl::StrSplit(line, ' ', absl::SkipEmpty())) {
    const bool digits = word.find_first_not_of("0123456789.") == absl::string_view::npos;
    if (digits && word.find('.') != absl::string_view::npos) return std::string(word);
  }
  return "";
}

// The commit of the package that this program lies in, as its file PACKAGE says; else "".
std::string PackageCommit() {
  std::error_code unknown;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", unknown);
  const std::string text =
      ReadFileOrEmpty((program.parent_path().parent_path() / "PACKAGE").string());
  constexpr absl::string_view kBefore = ", of commit ";
  const size_t at = text.find(kBefore.data(), 0, kBefore.size());
  if (at == std::string::npos) return "";
  const size_t begin = at + kBefore.size();
  return text.substr(begin, text.find('\n', begin) - begin);
}

std::string FormatRate(Bound bound, double per_s) {
  if (bound == Bound::kBytes) return absl::StrFormat("%.1f GB/s", per_s / 1e9);
  return per_s < 1e12 ? absl::StrFormat("%.1f GF/s", per_s / 1e9)
                      : absl::StrFormat("%.1f TF/s", per_s / 1e12);
}

std::string FormatCeilings(const Ceilings& ceilings) {
  std::string text;
  if (ceilings.bytes_per_s > 0) {
    absl::StrAppend(&text, "; reads ", FormatRate(Bound::kBytes, ceilings.bytes_per_s));
  }
  if (ceilings.operations_per_s > 0) {
    absl::StrAppend(&text, "; products ",
                    FormatRate(Bound::kOperations, ceilings.operations_per_s));
  }
  if (ceilings.byte_operations_per_s > 0) {
    absl::StrAppend(&text, ", of bytes ",
                    FormatRate(Bound::kOperations, ceilings.byte_operations_per_s));
  }
  return text;
}

// JSON's null where nothing was measured.
Json OrNull(double value) { return value > 0 ? Json(value) : Json(); }

Json ToJson(const Ceilings& ceilings) {
  return {{"bytes_per_s", OrNull(ceilings.bytes_per_s)},
          {"operations_per_s", OrNull(ceilings.operations_per_s)},
          {"byte_operations_per_s", OrNull(ceilings.byte_operations_per_s)}};
}

Json ToJson(const BenchRow& row) {
  const Bound bound = BoundOf(row);
  Json json = {{"name", row.name}};
  for (const auto& [key, value] : row.fields) json[key] = value;
  json["seconds"] = row.seconds;
  json["samples"] = row.samples;
  if (row.tokens > 0) json["tokens_per_s"] = row.tokens / row.seconds;
  json["bytes"] = row.bytes;
  json["operations"] = row.operations;
  json["ceilings"] = ToJson(row.ceilings);
  json["bound"] =
      bound == Bound::kNone ? Json() : Json(bound == Bound::kBytes ? "bytes" : "operations");
  json["fraction"] = bound == Bound::kNone ? Json() : Json(FractionOf(row));
  return json;
}

// What the row takes at least, by one ceiling.
double Least(double amount, double per_s) { return per_s > 0 ? amount / per_s : 0; }

}  // namespace

Bound BoundOf(const BenchRow& row) {
  const double reading = Least(row.bytes, row.ceilings.bytes_per_s);
  const double computing = Least(row.operations, row.ceilings.operations_per_s);
  if (reading == 0 && computing == 0) return Bound::kNone;
  return reading >= computing ? Bound::kBytes : Bound::kOperations;
}

double FractionOf(const BenchRow& row) {
  if (row.fraction.has_value()) return *row.fraction;
  return std::max(Least(row.bytes, row.ceilings.bytes_per_s),
                  Least(row.operations, row.ceilings.operations_per_s)) /
         row.seconds;
}

BenchReport::BenchReport(std::string command, std::string subject, BenchMachine machine)
    : command_(std::move(command)), subject_(std::move(subject)), machine_(std::move(machine)) {}

void BenchReport::Begin() const {
  ShowProgress("");
  absl::PrintF("%s%s%s%s%s\n", subject_, subject_.empty() ? "" : " on ", machine_.device,
               machine_.threads > 0 ? absl::StrCat(", ", machine_.threads, " threads") : "",
               FormatCeilings(machine_.ceilings));
  std::fflush(stdout);
}

void BenchReport::Note(const std::string& line,
                       std::vector<std::pair<std::string, double>> numbers) {
  ShowProgress("");
  absl::PrintF("%s\n", line);
  for (auto& number : numbers) notes_.push_back(std::move(number));
}

void BenchReport::Add(BenchRow row) {
  ShowProgress("");
  if (rows_.empty()) {
    absl::PrintF(kColumns, command_, "median", "tokens/s", "MB", "GFLOP", "rate", "share");
  }
  const Bound bound = BoundOf(row);
  const double amount = bound == Bound::kOperations ? row.operations : row.bytes;
  absl::PrintF(
      kColumns, row.name, FormatSeconds(row.seconds),
      row.tokens > 0 ? absl::StrFormat("%.1f", row.tokens / row.seconds) : "",
      absl::StrFormat("%.2f", row.bytes / 1e6), absl::StrFormat("%.2f", row.operations / 1e9),
      amount > 0 ? FormatRate(bound == Bound::kNone ? Bound::kBytes : bound, amount / row.seconds)
                 : "",
      bound == Bound::kNone ? "" : absl::StrFormat("%.1f%%", FractionOf(row) * 100));
  std::fflush(stdout);
  rows_.push_back(std::move(row));
}

std::string BenchReport::ToJson() const {
  const std::string driver = machine_.kind == "cuda" ? DriverVersion() : "";
  const std::string commit = PackageCommit();
  Json json = {{"command", command_},
               {"subject", subject_},
               {"version", std::string(kVersion)},
               {"commit", commit.empty() ? Json() : Json(commit)},
               {"time", absl::FormatTime(absl::RFC3339_sec, absl::Now(), absl::UTCTimeZone())},
               {"machine",
                {{"kind", machine_.kind},
                 {"device", machine_.device},
                 {"driver", driver.empty() ? Json() : Json(driver)},
                 {"threads", machine_.threads},
                 {"ceilings", skein::ToJson(machine_.ceilings)}}}};
  for (const auto& [key, value] : notes_) json[key] = value;
  Json& rows = json["rows"] = Json::array();
  for (const BenchRow& row : rows_) rows.push_back(skein::ToJson(row));
  return json.dump(/*indent=*/1, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace) +
         "\n";
}

absl::Status BenchReport::WriteJson(const std::string& file) const {
  return WriteJsonFile(file, ToJson());
}

absl::Status WriteJsonFile(const std::string& file, const std::string& json) {
  if (file.empty()) return absl::OkStatus();
  if (file != "-") return Annotate(WriteFile(file, json), "--json");
  absl::PrintF("%s", json);
  return absl::OkStatus();
}

absl::Status CheckJsonFile(const std::string& file) {
  if (file.empty() || file == "-") return absl::OkStatus();
  return Annotate(CheckWritable(file), "--json");
}

absl::Status BenchReport::CheckFractions(double least) const {
  for (const BenchRow& row : rows_) {
    if (FractionOf(row) >= least) continue;
    return absl::FailedPreconditionError(
        absl::StrFormat("%s reaches %.0f%% of its ceiling, asked were %.0f%%", row.name,
                        FractionOf(row) * 100, least * 100));
  }
  return absl::OkStatus();
}

std::string FormatSeconds(double seconds) {
  if (seconds < 1e-3) return absl::StrFormat("%.2f us", seconds * 1e6);
  if (seconds < 1) return absl::StrFormat("%.3f ms", seconds * 1e3);
  return absl::StrFormat("%.3f s", seconds);
}

double Median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  return (*std::max_element(values.begin(), middle) + *middle) / 2;
}

void ShowProgress(const std::string& what) {
  if (isatty(STDERR_FILENO)) std::fprintf(stderr, "\r\033[K%s", what.c_str());
}

}  // namespace skein
