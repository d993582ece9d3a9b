// A batch's numbers on their way to the device: lists of integers, one after the other in one block
// that is copied at once.
#pragma once

#include <cstdint>

#include "kernels/ops/batch.h"

namespace skein::kernels::cuda {

// In the place of a token: the newest one of this slot.
constexpr int32_t NewestOf(int32_t slot) { return -1 - slot; }

struct SetPair {
  int32_t index = 0;
  int32_t value = 0;
};

// Entries of a slot's list: see SlotMemory.
inline constexpr int32_t kSlotEntries = 1536;

// A draw from a row of logits: see SampledDraws. Parameters are those of serving::SamplingParams.
struct SampledDraw {
  int32_t row = 0;
  int32_t slot = 0;
  float uniform = 0;      // [0, 1)
  float temperature = 1;  // 0: the most likely token
  int32_t top_k = 0;      // 0: all
  float top_p = 1;
  float min_p = 0;
  float typical_p = 1;
  float repetition_penalty = 1;
  float presence_penalty = 0;
  float frequency_penalty = 0;
  float mirostat_tau = 0;  // 0: off
  float mirostat_eta = 0;
  int32_t logprobs = -1;  // n >= 0: the token's, and the n most likely ones'
  int32_t prompt = 0;     // tokens of the slot's history that are the prompt's
  int32_t output = 0;     // those behind
  int32_t biases = 0;     // entries of the slot's list, ascending by token
  int32_t stops = 0;      // entries behind them: tokens that are left out
  float dry_multiplier = 0;
  float dry_base = 1;
  int32_t dry_allowed_length = 1;
  int32_t dry_last_n = -1;
  int32_t dry_most = 0;        // longer repeats cost the same; 0: no DRY
  int32_t breakers_begin = 0;  // in the slot's list
  int32_t breakers = 0;        // of several tokens
  int32_t token = -1;          // >= 0: nothing is drawn, and it tells of this one
  bool breaks = false;         // tokens of the slot's bits are breakers
  bool penalises = false;      // by repetition_penalty and the two behind it
  bool leaves = true;          // its token and its mu with the slot

  // Whether it depends on the slot's history.
  constexpr bool remembers() const { return penalises || dry_most > 0; }
};

// How long the lists are, and so where they lie.
struct BatchUpload {
  int32_t rows = 0;
  int32_t sequences = 0;
  int32_t outputs = 0;
  int32_t tokens = 0;   // newest ones that are set
  int64_t pages = 0;    // entries of page tables that are set
  int32_t greedy = 0;   // draws that take the most likely token
  int32_t sampled = 0;  // all others, and tokens that are told of

  // In bytes from the begin of the block: what has 64 bits, then what has 32.
  constexpr int64_t kv_slots() const { return 0; }                                    // [rows]
  constexpr int64_t set_tokens() const { return kv_slots() + int64_t{8} * rows; }     // SetPair
  constexpr int64_t set_pages() const { return set_tokens() + int64_t{8} * tokens; }  // SetPair
  // SetPair: output, slot or -1; see GreedyDraws.
  constexpr int64_t greedy_draws() const { return set_pages() + 8 * pages; }
  // SampledDraw.
  constexpr int64_t sampled_draws() const { return greedy_draws() + int64_t{8} * greedy; }
  // [rows]
  constexpr int64_t token_ids() const {
    return sampled_draws() + int64_t{sizeof(SampledDraw)} * sampled;
  }
  constexpr int64_t positions() const { return token_ids() + int64_t{4} * rows; }  // [rows]
  // [sequences + 1]
  constexpr int64_t row_begin() const { return positions() + int64_t{4} * rows; }
  constexpr int64_t slots() const { return row_begin() + int64_t{4} * (sequences + 1); }
  constexpr int64_t lengths() const { return slots() + int64_t{4} * sequences; }
  constexpr int64_t output_rows() const { return lengths() + int64_t{4} * sequences; }
  constexpr int64_t bytes() const { return output_rows() + int64_t{4} * outputs; }

  // Where every slot gets a new token and a whole new page table.
  static constexpr int64_t MaxBytes(const Limits& limits) {
    return BatchUpload{.rows = static_cast<int32_t>(limits.rows),
                       .sequences = limits.slots,
                       .outputs = static_cast<int32_t>(limits.outputs),
                       .tokens = limits.slots,
                       .pages = limits.slots * limits.slot_pages,
                       .greedy = static_cast<int32_t>(limits.outputs),
                       .sampled = static_cast<int32_t>(limits.outputs)}
        .bytes();
  }
};

}  // namespace skein::kernels::cuda
