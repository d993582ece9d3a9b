// The input and the result of one run of a Program. The executable keeps, by slot, what lasts from
// run to run: a sequence's length, its page table, its newest token, and what its draws depend on.
// A batch brings the changes, so that filling and checking one costs the same at any context, and a
// captured graph can be replayed with others.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "serving/output.h"
#include "serving/sampling_params.h"

namespace skein::kernels {

// The sizes of the largest batch and of the state that is kept. They are fixed when a Program is
// compiled.
struct Limits {
  int64_t rows = 1;
  int64_t outputs = 0;
  int32_t slots = 1;       // sequences that have state
  int64_t slot_pages = 0;  // pages of one sequence
};

// Another sequence takes the slot, with length 0 and no pages. All fields but the slot matter only
// where the Program has logits.
struct SlotStart {
  int32_t slot = 0;
  int32_t prompt_of = -1;  // >= 0: the prompt is that of this slot, which started before
  std::vector<int32_t> prompt;
  std::vector<int32_t> output;  // was given before; draws go on behind it
  std::optional<float> mu;      // mirostat's state after `output`
  serving::SamplingParams sampling;
};

// Copies one page of all layers: within the cache, to the swap pool, or from it.
struct PageCopy {
  enum class Kind : uint8_t { kWithin, kSwapOut, kSwapIn };
  Kind kind = Kind::kWithin;
  int32_t from = 0;
  int32_t to = 0;

  friend bool operator==(const PageCopy&, const PageCopy&) = default;
};

// Puts `pages` in place of the slot's pages from index `first_page` on; pages before that stay. A
// batch's updates put no more pages than all slots have together.
//
// A `length` below the slot's takes positions back. Pages that hold none of the positions left are
// cut off before `pages` are put there, and draws forget the tokens that came from positions that
// are gone. The newest token does not change: the slot's next row names its own token, or SetTokens
// has set it.
struct SlotUpdate {
  int32_t slot = 0;
  std::optional<int64_t> length;  // positions in the cache; unset: as the last batch left it
  std::optional<float> mu;  // mirostat's state where positions are taken back; unset: it stays
  int64_t first_page = 0;
  std::vector<int32_t> pages;

  friend bool operator==(const SlotUpdate&, const SlotUpdate&) = default;
};

// Stands for the newest token of the row's slot: the one that was drawn or set last.
inline constexpr int32_t kNewestToken = -1;

// A sequence's part of a batch: the next `rows` positions of its slot.
struct BatchSequence {
  int32_t slot = 0;
  int32_t rows = 1;
  int32_t outputs = 0;  // the last so many rows are outputs: their logits are wanted
  bool draws = false;   // the last row's logits give the slot's next token
  // n >= 0: every row is an output, and tells the log probability of the prompt's next token and
  // those of the n most likely ones. The rows end no later than the prompt.
  int32_t prompt_logprobs = -1;
  // The tokens of the last so many rows are guesses: each is what the row before is expected to
  // draw. Guesses need `draws`, and outputs for their rows and the row before. The result lists
  // what these rows draw, up to and with the first draw that is not as guessed: these tokens are
  // those of steps without guesses. The slot's length and newest token follow, also in a batch that
  // is enqueued already. The positions of wrong guesses are taken back, but no pages: whoever gives
  // pages out counts with the most positions, and cuts pages by an update. Under mirostat, whose
  // state goes from draw to draw, no guess counts as right.
  int32_t guesses = 0;
  bool masked = false;  // its draws wait for Executable::SetMask
  int32_t pooled = 0;   // the last so many rows are summed up: see Program::pooled
};

// The lists take effect in this order, and copies one after the other. Rows are those of the
// sequences in their order: a prefill chunk has several, a decoding sequence has one, and its
// guesses. A slot stands in a batch once.
//
// Slots may share pages, but none reads or writes what another sequence of the batch writes: a page
// is whole before a second slot's positions reach it, and who is to write to a shared page gets a
// copy before. Back ends read a sequence's earlier positions while they still write the newest ones
// of all. Two sequences that write to one page are refused; the rest is not checked.
//
// Padding is inert. A Batch has none: its lists end with its counts. A back end may run more rows
// than there are (a captured graph has one size): they belong to no sequence, and write no page, no
// slot's state and no row of a port below the counts. Nor does a row depend on anything beyond the
// counts: the rest of a buffer or a port, and a page's positions behind its sequence's length, may
// hold anything that was left there, NaN and infinity included.
struct Batch {
  int64_t step = 0;
  std::vector<SlotStart> starts;
  std::vector<PageCopy> copies;
  std::vector<SlotUpdate> updates;
  std::vector<BatchSequence> sequences;
  std::vector<int32_t> token_ids;  // [rows]; nobody reads them where nothing is embedded

  int64_t rows() const { return static_cast<int64_t>(token_ids.size()); }
  int64_t outputs() const {
    int64_t outputs = 0;
    for (const BatchSequence& sequence : sequences) outputs += sequence.outputs;
    return outputs;
  }
  // Keeps the memory.
  void Clear() {
    step = 0;
    starts.clear();
    copies.clear();
    updates.clear();
    sequences.clear();
    token_ids.clear();
  }
};

// The tokens that a slot gave: one, or more where guesses were right.
struct SampledTokens {
  int32_t slot = 0;
  absl::InlinedVector<serving::SampledToken, 1> tokens;
  std::string error;  // not empty: the draw failed, there are no tokens
};

// tokens[i] stands at position first + i of the prompt.
struct PromptLogprobs {
  int32_t slot = 0;
  int64_t first = 0;
  std::vector<serving::SampledToken> tokens;
  std::string error;  // not empty: `tokens` is void
};

// The sum over a sequence's pooled rows. Doubles, so that it hardly matters how a prompt was cut
// into chunks.
struct PooledRows {
  int32_t slot = 0;
  int64_t rows = 0;
  std::vector<double> sum;  // [cols]
};

// The lists are in the order of the batch's sequences.
struct BatchResult {
  std::vector<SampledTokens> sampled;
  std::vector<PromptLogprobs> prompt_logprobs;
  std::vector<PooledRows> pooled;
};

}  // namespace skein::kernels
