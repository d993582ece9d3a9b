// What devices and the ways between them do in a second, as a planner weighs layouts by it. Plain
// data: measured by a probe, or taken from datasheets.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/time/time.h"
#include "base/dtype.h"

namespace skein::topology {

enum class Origin : uint8_t {
  kUnknown,
  kModelled,  // from datasheets
  kMeasured,
};
std::string_view OriginName(Origin origin);  // "", "modelled", "measured"
// The same with a spread (DeviceRates') where there is one: "measured ±3%".
std::string OriginText(Origin origin, double spread);

// Reading the same `working_set_bytes` again and again: caches hold small ones.
struct ReadRate {
  int64_t working_set_bytes = 0;
  double alone_bytes_per_s = 0;     // of a rank while the others of its node are idle
  double together_bytes_per_s = 0;  // of each rank while all of its node read
  // Of each rank in the first pass since those that share its core have read sets of their own; 0:
  // not measured. It misses in caches what `together` does not, of which the next pass misses this
  // share again, and so on.
  double behind_bytes_per_s = 0;
  double missed_again = 0;

  friend bool operator==(const ReadRate&, const ReadRate&) = default;
};

// Products [rows, K] x [K, N] of a model's layers, with what passes between them, on cores beside
// others of the host. A multiply-add is two operations.
struct ProductRate {
  DType dtype = DType::kBF16;
  // Of weights that are multiplied in turn: caches hold small ones. 0: that caches do not hold.
  int64_t working_set_bytes = 0;
  int64_t rows = 0;
  double operations_per_s = 0;

  friend bool operator==(const ProductRate&, const ProductRate&) = default;
};

// What a step of so many rows costs beside what it reads and multiplies.
struct Overhead {
  int64_t rows = 1;
  absl::Duration step;   // that has no layers
  absl::Duration layer;  // and what each of its layers adds

  friend bool operator==(const Overhead&, const Overhead&) = default;
};

// Attention of decodes, each of which reads its own keys and values, on cores beside others of the
// host. Its time is that of reads and of arithmetic, one behind the other.
struct AttentionRate {
  int64_t rows = 0;
  double bytes_per_s = 0;         // of keys and values
  double operations_per_s = 0;    // 0: arithmetic takes no time of its own
  int64_t working_set_bytes = 0;  // weights and these; 0: that caches do not hold

  friend bool operator==(const AttentionRate&, const AttentionRate&) = default;
};

struct DeviceRates {
  Origin origin = Origin::kUnknown;
  std::vector<ReadRate> reads;        // by working set, ascending
  std::vector<ProductRate> products;  // by dtype, then by working set, then by rows, ascending
  std::vector<Overhead> overheads;    // by rows, ascending; none: nothing
  // Of measurements: half of them were within this share of their median, for the worst rate.
  double spread = 0;
  // By working set, then by rows, ascending; none: as reads and products.
  std::vector<AttentionRate> attention;
  // That products of a rank hand on to the next ones: to other cores' caches, where its threads
  // share the work. 0: it takes no time.
  double passed_values_per_s = 0;

  friend bool operator==(const DeviceRates&, const DeviceRates&) = default;
};

// A message of `bytes` takes latency + bytes / bytes_per_s, one way.
struct LinkRate {
  Origin origin = Origin::kUnknown;
  absl::Duration latency;
  double bytes_per_s = 0;  // 0: not told
  double spread = 0;       // as DeviceRates has it

  friend bool operator==(const LinkRate&, const LinkRate&) = default;
};

enum class Exchange : uint8_t {
  kAllReduce,
  kAllGather,
  kSendReceive,  // a message one way; on cores to a rank that has waited for so long that it sleeps
  kSendToAwake,  // likewise, on cores alone, to a rank that polls still
  // Drawn tokens, from the last stage of a pipeline to the first: from the end of a micro-batch
  // there to the begin of its next step here, 4 bytes for each row.
  kTokenReturn,
};
// "all_reduce", "all_gather", "send_receive", "send_to_awake", "token_return"
std::string_view ExchangeName(Exchange exchange);

struct ExchangeTime {
  int64_t bytes = 0;  // of the result, on each rank
  absl::Duration time;

  friend bool operator==(const ExchangeTime&, const ExchangeTime&) = default;
};

// The times of an exchange, by the very code that serves, among `ranks` of one node or, `across`,
// of several, of which each has as many.
struct ExchangeCurve {
  Exchange exchange = Exchange::kAllReduce;
  int32_t ranks = 2;
  bool across = false;
  std::vector<ExchangeTime> times;  // by bytes, ascending
  double spread = 0;                // DeviceRates'
  // Of a node that has fewer cores than ranks: the other groups stood still meanwhile.
  bool alone = false;
  int32_t ranks_per_host = 1;  // `across`

  friend bool operator==(const ExchangeCurve&, const ExchangeCurve&) = default;
};

}  // namespace skein::topology
