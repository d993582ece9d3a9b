// What a benchmark reached, held against the most that the same run found its machine to give: a
// table for people, whose rows appear as they come, and JSON for programs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"

namespace skein {

// The most that a machine gives; 0 where nobody measured it.
struct Ceilings {
  double bytes_per_s = 0;            // read from memory, or carried
  double operations_per_s = 0;       // of products; in a row, of its mix of both kinds
  double byte_operations_per_s = 0;  // of products with quantised weights, where these differ
};

struct BenchRow {
  std::string name;                                     // "decode, batch 8"
  std::vector<std::pair<std::string, int64_t>> fields;  // what was measured: {"batch", 8}
  double seconds = 0;                                   // the median
  int samples = 0;
  double tokens = 0;      // computed in that time; 0 where there are none
  double bytes = 0;       // that have to be read, or carried
  double operations = 0;  // that have to be done
  Ceilings ceilings;
  // The share of the ceiling, where it was taken sample by sample; else it is that of the medians.
  std::optional<double> fraction;
};

// The ceiling that takes longer, which a row is held against.
enum class Bound : uint8_t { kNone, kBytes, kOperations };
Bound BoundOf(const BenchRow& row);
// The share of that ceiling which the row reached; 0 where there is none.
double FractionOf(const BenchRow& row);

struct BenchMachine {
  std::string kind;    // "cpu", "cuda"
  std::string device;  // "NVIDIA H200"
  int threads = 0;     // of the CPU that compute; 0 where none do
  Ceilings ceilings;
};

class BenchReport {
 public:
  // `command` is "decode"; `subject` what is measured, like a model's name, or "".
  BenchReport(std::string command, std::string subject, BenchMachine machine);

  // All of these print to standard output, in the place of what ShowProgress left.
  //
  // The machine and its ceilings.
  void Begin() const;
  // A line above the table; in the JSON these numbers.
  void Note(const std::string& line, std::vector<std::pair<std::string, double>> numbers);
  // A row; the table's head above the first one.
  void Add(BenchRow row);

  std::string ToJson() const;
  // Writes that into the file of --json; "-": to standard output, behind the table; "": nowhere.
  absl::Status WriteJson(const std::string& file) const;
  // FailedPrecondition names a row that reached less than this share of its ceiling.
  absl::Status CheckFractions(double least) const;

 private:
  const std::string command_;
  const std::string subject_;
  const BenchMachine machine_;
  std::vector<BenchRow> rows_;
  std::vector<std::pair<std::string, double>> notes_;
};

// What a command asks of --json before it measures: whether WriteJson can write there.
absl::Status CheckJsonFile(const std::string& file);
// Writes `json` there, as WriteJson does.
absl::Status WriteJsonFile(const std::string& file, const std::string& json);

// "4.025 ms"
std::string FormatSeconds(double seconds);

// The median; of an even count the mean of the middle two. `values` is not empty.
double Median(std::vector<double> values);

// Replaces the line that stands there; does nothing where standard error is no terminal.
void ShowProgress(const std::string& what);

}  // namespace skein
