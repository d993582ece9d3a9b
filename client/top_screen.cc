#include "client/top_screen.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "base/printable.h"

namespace skein::client {
namespace {

namespace wire = ::skein::cluster::v1;

constexpr int kLeastColumns = 20;

// Select Graphic Rendition of terminals.
enum class Style : uint8_t { kPlain, kBold, kQuiet, kGood, kBad };
constexpr std::string_view kCodes[] = {"", "\x1b[1m", "\x1b[2m", "\x1b[32m", "\x1b[31m"};

bool BeginsCharacter(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) != 0x80; }

// `text`, or its beginning, of at most so many characters.
std::string Cut(const std::string& text, int columns) {
  int characters = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (BeginsCharacter(text[i]) && ++characters > columns) return text.substr(0, i);
  }
  return text;
}

int WidthOf(const std::string& text) {
  return static_cast<int>(std::count_if(text.begin(), text.end(), BeginsCharacter));
}

std::string Padded(const std::string& text, int columns) {
  const std::string cut = Cut(text, columns);
  return cut + std::string(columns - WidthOf(cut), ' ');
}

class Lines {
 public:
  explicit Lines(const ScreenOptions& options)
      : options_(options), columns_(std::max(options.columns, kLeastColumns)) {}

  void Add(const std::string& text, Style style = Style::kPlain) {
    std::string line = Cut(text, columns_);
    if (options_.colours && style != Style::kPlain) {
      line = absl::StrCat(std::string(kCodes[static_cast<int>(style)]), line, "\x1b[0m");
    }
    lines_.push_back(std::move(line));
  }
  // Over several lines.
  void Wrap(const std::string& text, const std::string& indent, Style style = Style::kPlain) {
    std::string rest = text;
    const int room = columns_ - static_cast<int>(indent.size());
    do {
      std::string piece = Cut(rest, room);
      const size_t space = piece.size() < rest.size() ? piece.rfind(' ') : std::string::npos;
      if (space != std::string::npos && space > 0) piece.resize(space);
      Add(indent + piece, style);
      rest.erase(0, piece.size());
      rest.erase(0, rest.find_first_not_of(' '));
    } while (!rest.empty());
  }
  std::vector<std::string> Take() && {
    const auto most = static_cast<size_t>(std::max(0, options_.rows));
    if (options_.rows > 0 && lines_.size() > most) {
      const size_t left = lines_.size() - most + 1;
      lines_.resize(most - 1);
      Add(absl::StrCat("... ", left, " more lines: make the window larger"), Style::kQuiet);
    }
    return std::move(lines_);
  }

 private:
  const ScreenOptions options_;
  const int columns_;
  std::vector<std::string> lines_;
};

std::string Name(const std::string& text) { return Printable(text, kMaxNameBytes); }

std::string Short(double seconds) {
  if (seconds <= 0) return "0 s";
  if (seconds < 1e-3) return absl::StrFormat("%.3g us", 1e6 * seconds);
  return seconds < 1 ? absl::StrFormat("%.3g ms", 1e3 * seconds)
                     : absl::StrFormat("%.3g s", seconds);
}

std::string LatencyWords(const char* what, const wire::Quantiles& of) {
  if (of.count() == 0) return absl::StrCat(what, " -");
  return absl::StrFormat("%s %s (99%%: %s)", what, Short(of.p50_seconds()),
                         Short(of.p99_seconds()));
}

std::string Percent(double part, double whole) {
  return whole > 0 ? absl::StrFormat("%.0f%%", 100 * part / whole) : "-";
}

void AddFigures(const wire::ClusterStatus& status, Lines& lines) {
  double rate = 0;
  int64_t used = 0, cached = 0, pages = 0, looked = 0, found = 0;
  for (const wire::JobStatus& job : status.jobs()) {
    if (job.has_over_seconds()) continue;
    for (const wire::ReplicaStatus& replica : job.replicas()) {
      rate += replica.tokens_per_second();
      used += replica.load().used_pages();
      cached += replica.load().cached_pages();
      pages += replica.load().total_pages();
      looked += replica.load().prompt_tokens();
      found += replica.load().cached_tokens();
    }
  }
  lines.Add(absl::StrFormat("%.1f tokens/s; %d requests run, %d are queued; %d answers moved", rate,
                            status.running_requests(), status.queued_requests(),
                            status.migrations()));
  lines.Add(absl::StrCat(LatencyWords("first token", status.latencies().first_token()), "; ",
                         LatencyWords("between tokens", status.latencies().inter_token())));
  lines.Add(absl::StrFormat(
      "pages: %s used (%d), %d cached, of %d; prefix cache: %s of %d tokens",
      Percent(static_cast<double>(used), static_cast<double>(pages)), used, cached, pages,
      Percent(static_cast<double>(found), static_cast<double>(looked)), looked));
}

// "########~~..", of twelve characters: computes, transfers, waits for others, waits for orders.
std::string Bar(const std::array<double, 4>& shares) {
  constexpr int kWidth = 12;
  constexpr char kSigns[] = "#=~.";
  std::string bar;
  double up_to = 0;
  for (size_t i = 0; i < shares.size(); ++i) {
    up_to += shares[i];
    const auto end = static_cast<size_t>(std::lround(kWidth * up_to));
    if (end > bar.size()) bar.append(end - bar.size(), kSigns[i]);
  }
  return bar;
}

void AddRank(const wire::RankStatus& rank, Lines& lines) {
  std::string line =
      absl::StrFormat("  %4d  %s  %s  %7s", rank.rank(), Padded(Name(rank.host()), 16),
                      Padded(Name(rank.state()), 8), Short(rank.heartbeat_age_seconds()));
  const wire::RankTimes& times = rank.recent_times();
  const std::array<double, 4> of = {times.compute_seconds(), times.transfer_seconds(),
                                    times.bubble_seconds(), times.waiting_seconds()};
  const double whole = of[0] + of[1] + of[2] + of[3];
  if (whole > 0) {
    for (const double part : of)
      absl::StrAppend(&line, absl::StrFormat(" %5.0f%%", 100 * part / whole));
    absl::StrAppend(&line, "  ", Bar({of[0] / whole, of[1] / whole, of[2] / whole, of[3] / whole}));
  }
  const bool lives = rank.state() == "ready" || rank.state() == "idle";
  lines.Add(line, lives ? Style::kPlain : Style::kBad);
}

void AddJob(const wire::JobStatus& job, Lines& lines) {
  lines.Add("");
  const skein::plan::v1::Layout& layout = job.plan().layout();
  const std::string planned =
      job.has_plan()
          ? absl::StrFormat(", tp=%d,pp=%d,dp=%d of %s", layout.tp_size(), layout.pp_size(),
                            layout.dp_size(), Name(job.plan().model_name()))
          : "";
  lines.Add(absl::StrFormat("job %s: %s%s, %d of %d ranks", Name(job.job_id()), Name(job.state()),
                            planned, job.ranks_size(), job.size()),
            Style::kBold);
  if (job.replicas_size() > 0) {
    lines.Add(
        "  replica  tokens/s  running  waiting     used   cached    pages       step  predicted",
        Style::kQuiet);
  }
  for (const wire::ReplicaStatus& replica : job.replicas()) {
    const wire::ReplicaLoad& load = replica.load();
    const wire::DecodeComparison& step = replica.decode();
    lines.Add(absl::StrFormat("  %7d  %8.1f  %7d  %7d  %7d  %7d  %7d  %9s  %9s", replica.replica(),
                              replica.tokens_per_second(), load.running(), load.waiting(),
                              load.used_pages(), load.cached_pages(), load.total_pages(),
                              replica.has_decode() ? Short(step.measured_seconds()) : "-",
                              replica.has_decode() ? Short(step.predicted_seconds()) : "-"));
    if (replica.has_prompt()) {
      const wire::PromptComparison& prompt = replica.prompt();
      lines.Add(absl::StrFormat("%64s  %9s  %9s", "with prompts", Short(prompt.measured_seconds()),
                                Short(prompt.predicted_seconds())));
    }
  }
  if (job.ranks_size() == 0) return;
  lines.Add("  rank  host              state       heard  comp# trans= bubbl~  wait.",
            Style::kQuiet);
  for (const wire::RankStatus& rank : job.ranks()) AddRank(rank, lines);
}

}  // namespace

std::string Span(absl::Duration time) {
  const absl::Duration whole = absl::Trunc(time, absl::Seconds(1));
  return whole == absl::ZeroDuration() ? "0s" : absl::FormatDuration(whole);
}

std::vector<std::string> Screen(const wire::ClusterStatus& status, const std::string& lost,
                                const ScreenOptions& options) {
  Lines lines(options);
  if (!lost.empty()) lines.Wrap(Printable(lost), "", Style::kBad);
  if (status.version().empty()) return std::move(lines).Take();  // nothing was heard yet
  const bool good = status.serving() && !status.draining();
  lines.Add(
      absl::StrFormat("skein %s, %s: %s, up %s", Name(status.version()), Name(status.model_name()),
                      status.draining()  ? "draining"
                      : status.serving() ? "serving"
                                         : "no replica serves",
                      Span(absl::Seconds(status.uptime_seconds()))),
      good ? Style::kGood : Style::kBad);
  AddFigures(status, lines);
  for (const wire::JobStatus& job : status.jobs()) {
    if (!job.has_over_seconds()) AddJob(job, lines);
  }
  for (const wire::JobStatus& job : status.jobs()) {
    if (!job.has_over_seconds()) continue;
    lines.Add("");
    lines.Add(absl::StrFormat("job %s: %s %s ago", Name(job.job_id()), Name(job.state()),
                              Span(absl::Seconds(job.over_seconds()))),
              job.state() == "lost" ? Style::kBad : Style::kQuiet);
    lines.Wrap(Printable(job.detail()), "  ");
  }
  return std::move(lines).Take();
}

}  // namespace skein::client
