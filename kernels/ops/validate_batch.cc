#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <variant>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "base/status_macros.h"
#include "kernels/ops/invalid.h"
#include "kernels/ops/validate.h"

namespace skein::kernels {
namespace {

constexpr int64_t kMaxLength = int64_t{1} << 30;  // positions are int32

bool InRange(int64_t value, int64_t end) { return value >= 0 && value < end; }

absl::Status ValidateSlot(const BatchRules& rules, const char* what, int32_t slot) {
  if (InRange(slot, rules.limits.slots)) return absl::OkStatus();
  return Invalid(what, ": no slot ", slot, " of ", rules.limits.slots);
}

absl::Status ValidateStart(const BatchRules& rules, const SlotStart& start) {
  SKEIN_RETURN_IF_ERROR(ValidateSlot(rules, "a start", start.slot));
  if (start.prompt_of < 0) return absl::OkStatus();
  return ValidateSlot(rules, "a shared prompt", start.prompt_of);
}

absl::Status ValidateCopy(const BatchRules& rules, const PageCopy& copy) {
  const bool out = copy.kind == PageCopy::Kind::kSwapOut;
  const bool in = copy.kind == PageCopy::Kind::kSwapIn;
  const int64_t pages = rules.kv ? rules.kv_spec.pages : 0;
  if (InRange(copy.from, in ? rules.swap_pages : pages) &&
      InRange(copy.to, out ? rules.swap_pages : pages)) {
    return absl::OkStatus();
  }
  return Invalid("a copy", in ? " from the swap pool" : (out ? " to the swap pool" : ""), ": page ",
                 copy.from, " to ", copy.to, ", of ", pages, " and ", rules.swap_pages,
                 " in the pool");
}

absl::Status ValidateUpdate(const BatchRules& rules, const SlotUpdate& update) {
  SKEIN_RETURN_IF_ERROR(ValidateSlot(rules, "an update", update.slot));
  const auto count = static_cast<int64_t>(update.pages.size());
  if (update.first_page < 0 || update.first_page > rules.limits.slot_pages - count) {
    return Invalid("slot ", update.slot, ": pages from ", update.first_page, ", ", count,
                   " of them; a slot has ", rules.limits.slot_pages);
  }
  if (!InRange(update.length.value_or(0), kMaxLength)) {
    return Invalid("slot ", update.slot, ": a length of ", *update.length);
  }
  if (!rules.kv) return absl::OkStatus();
  for (int64_t i = 0; i < count; ++i) {
    if (!InRange(update.pages[i], rules.kv_spec.pages)) {
      return Invalid("slot ", update.slot, ", page ", update.first_page + i, ": no page ",
                     update.pages[i], " of ", rules.kv_spec.pages);
    }
  }
  return absl::OkStatus();
}

absl::Status ValidateSequence(const BatchRules& rules, const BatchSequence& sequence) {
  SKEIN_RETURN_IF_ERROR(ValidateSlot(rules, "a sequence", sequence.slot));
  if (sequence.rows < 1) {
    return Invalid("slot ", sequence.slot, " has ", sequence.rows, " rows");
  }
  if (sequence.outputs < 0 || sequence.outputs > sequence.rows) {
    return Invalid("slot ", sequence.slot, " wants ", sequence.outputs, " outputs of ",
                   sequence.rows, " rows");
  }
  if (sequence.draws && sequence.outputs == 0) {
    return Invalid("slot ", sequence.slot, " is to be sampled from no output");
  }
  if (sequence.prompt_logprobs >= 0 && sequence.outputs != sequence.rows) {
    return Invalid("slot ", sequence.slot, " tells of its prompt with ", sequence.outputs,
                   " outputs of ", sequence.rows, " rows");
  }
  if (sequence.pooled < 0 || sequence.pooled > sequence.rows) {
    return Invalid("slot ", sequence.slot, " pools ", sequence.pooled, " of ", sequence.rows,
                   " rows");
  }
  if (sequence.masked && !sequence.draws) {
    return Invalid("slot ", sequence.slot, " has a mask and is not to be sampled from");
  }
  if (sequence.guesses < 0 || (sequence.guesses > 0 && !sequence.draws) ||
      sequence.guesses >= std::max(sequence.outputs, 1)) {
    return Invalid("slot ", sequence.slot, " has ", sequence.guesses, " guesses, with ",
                   sequence.outputs, " outputs, ", sequence.draws ? "" : "not ",
                   "to be sampled from");
  }
  return absl::OkStatus();
}

// `tokens` are those of the sequence's rows.
absl::Status ValidateGuesses(const BatchSequence& sequence, absl::Span<const int32_t> tokens) {
  for (int32_t guess : tokens.last(sequence.guesses)) {
    if (guess < 0) return Invalid("slot ", sequence.slot, ": a guess of token ", guess);
  }
  return absl::OkStatus();
}

}  // namespace

BatchRules RulesOf(const Program& program, const Limits& limits, const KvSpec* kv,
                   const KvSpec* swap) {
  BatchRules rules{.limits = limits};
  for (const Op& op : program.ops) {
    rules.tokens |= std::holds_alternative<EmbedOp>(op);
    rules.outputs |= std::holds_alternative<GatherRowsOp>(op);
  }
  if (kv != nullptr) {
    rules.kv = true;
    rules.kv_spec = *kv;
  }
  if (swap != nullptr) rules.swap_pages = swap->pages;
  return rules;
}

absl::Status ValidateTokens(const BatchRules& rules, absl::Span<const int32_t> slots,
                            absl::Span<const int32_t> tokens) {
  if (slots.size() != tokens.size()) {
    return Invalid(tokens.size(), " tokens for ", slots.size(), " slots");
  }
  for (size_t i = 0; i < slots.size(); ++i) {
    SKEIN_RETURN_IF_ERROR(ValidateSlot(rules, "a newest token", slots[i]));
    if (tokens[i] < 0) return Invalid("slot ", slots[i], ": a newest token of ", tokens[i]);
  }
  return absl::OkStatus();
}

absl::Status ValidateBatch(const BatchRules& rules, const Batch& batch) {
  if (batch.rows() > rules.limits.rows) {
    return Invalid("a batch of ", batch.rows(), " rows; there may be ", rules.limits.rows);
  }
  for (const SlotStart& start : batch.starts) SKEIN_RETURN_IF_ERROR(ValidateStart(rules, start));
  for (const PageCopy& copy : batch.copies) SKEIN_RETURN_IF_ERROR(ValidateCopy(rules, copy));
  int64_t pages = 0;
  for (const SlotUpdate& update : batch.updates) {
    SKEIN_RETURN_IF_ERROR(ValidateUpdate(rules, update));
    pages += static_cast<int64_t>(update.pages.size());
  }
  if (pages > rules.limits.slots * rules.limits.slot_pages) {
    return Invalid("updates of ", pages, " pages; ", rules.limits.slots, " slots have ",
                   rules.limits.slot_pages, " each");
  }
  int64_t rows = 0;
  for (const BatchSequence& sequence : batch.sequences) {
    SKEIN_RETURN_IF_ERROR(ValidateSequence(rules, sequence));
    rows += sequence.rows;
  }
  if (rows != batch.rows()) {
    return Invalid("sequences of ", rows, " rows, and ", batch.rows(), " tokens");
  }
  absl::Span<const int32_t> tokens = batch.token_ids;
  for (const BatchSequence& sequence : batch.sequences) {
    SKEIN_RETURN_IF_ERROR(ValidateGuesses(sequence, tokens.first(sequence.rows)));
    tokens.remove_prefix(sequence.rows);
  }
  if (rules.outputs && batch.outputs() > rules.limits.outputs) {
    return Invalid("a batch of ", batch.outputs(), " outputs; there may be ", rules.limits.outputs);
  }
  if (!rules.tokens) return absl::OkStatus();
  for (size_t i = 0; i < batch.token_ids.size(); ++i) {
    if (batch.token_ids[i] < 0 && batch.token_ids[i] != kNewestToken) {
      return Invalid("row ", i, ": no token ", batch.token_ids[i]);
    }
  }
  return absl::OkStatus();
}

}  // namespace skein::kernels
