// Checks Programs, batches and shapes by the rules that every back end holds them to.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/ops/backend.h"
#include "kernels/ops/batch.h"
#include "kernels/ops/program.h"

namespace skein::kernels {

// All functions here answer InvalidArgument that names what is wrong.

absl::Status ValidateWeightSpec(const WeightSpec& spec);
absl::Status ValidateKvSpec(const KvSpec& spec);
// Checks that page `from_page` of one cache can become page `to_page` of another.
absl::Status ValidatePageCopy(const KvSpec& from, int32_t from_page, const KvSpec& to,
                              int32_t to_page);
// Checks that the rows are there, of one dtype, and that they take so many bytes.
absl::Status ValidateRows(const std::vector<ProgramWeight>& weights, const WeightRows& rows,
                          int64_t bytes);

// `kv` is null where the Program is bound to no cache. Errors name the operation's index.
absl::Status ValidateProgram(const Program& program, const Limits& limits, const KvSpec* kv);

// Checks that the weights are the Program's, and that there are collectives where it has any.
// ValidateProgram says whether the cache fits.
absl::Status ValidateBindings(const Program& program, const Bindings& bindings);

// The facts of a Program by which its batches are checked.
struct BatchRules {
  Limits limits;
  bool tokens = false;   // it looks tokens up
  bool outputs = false;  // it takes rows out as outputs
  bool kv = false;       // it reads or writes the cache
  KvSpec kv_spec;
  int64_t swap_pages = 0;
};
// `kv` and `swap` are those of Bindings.
BatchRules RulesOf(const Program& program, const Limits& limits, const KvSpec* kv,
                   const KvSpec* swap);

// Checks everything that can be told without the slots' state. The back end checks the rest: that
// updates leave no hole, and that there is a page for every row. Cost: linear in the batch.
// Allocates only for an error's message.
absl::Status ValidateBatch(const BatchRules& rules, const Batch& batch);

// Checks what Executable::SetTokens is given, likewise.
absl::Status ValidateTokens(const BatchRules& rules, absl::Span<const int32_t> slots,
                            absl::Span<const int32_t> tokens);

}  // namespace skein::kernels
