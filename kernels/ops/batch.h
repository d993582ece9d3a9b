// What one run of a Program works on. What lasts from run to run is kept by the executable, by
// slot: a sequence's length, its page table, its newest token, and what its draws depend on. A
// batch brings what has changed: filling and checking one costs nothing for context, and a captured
// graph can be replayed with others.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "serving/output.h"
#include "serving/sampling_params.h"

namespace skein::kernels {

// The largest batch, and the state that is kept; fixed when a Program is compiled.
struct Limits {
  int64_t rows = 1;
  int64_t outputs = 0;
  int32_t slots = 1;       // sequences
  int64_t slot_pages = 0;  // of a sequence
};

// Another sequence takes the slot: its length is 0, and it has no pages. What follows matters where
// the Program has logits.
struct SlotStart {
  int32_t slot = 0;
  int32_t prompt_of = -1;  // >= 0: the prompt is this slot's, which started before
  std::vector<int32_t> prompt;
  std::vector<int32_t> output;  // given before; draws go on behind them
  std::optional<float> mu;      // mirostat's state after them
  serving::SamplingParams sampling;
};

struct PageCopy {
  enum class Kind : uint8_t { kWithin, kSwapOut, kSwapIn };  // the cache; to, from the swap pool
  Kind kind = Kind::kWithin;
  int32_t from = 0;
  int32_t to = 0;

  friend bool operator==(const PageCopy&, const PageCopy&) = default;
};

// The slot's pages from `first_page` on are these; those before stay.
//
// A length below the slot's takes positions back: pages that hold none of those left are cut off
// before `pages` are put there, and draws forget what was drawn from positions that are gone. The
// newest token does not change: the next row names its own, or SetTokens has set it.
struct SlotUpdate {
  int32_t slot = 0;
  std::optional<int64_t> length;  // positions that the cache holds; none: as the last batch left it
  std::optional<float> mu;        // mirostat's state where positions are taken back; none: it stays
  int64_t first_page = 0;
  std::vector<int32_t> pages;

  friend bool operator==(const SlotUpdate&, const SlotUpdate&) = default;
};

// In the place of a token: the newest one of the row's slot, which was drawn or set last.
inline constexpr int32_t kNewestToken = -1;

// The next `rows` positions of a slot.
struct BatchSequence {
  int32_t slot = 0;
  int32_t rows = 1;
  int32_t outputs = 0;  // rows, the last ones, whose logits are wanted
  bool draws = false;   // the last row's logits give the slot's next token
  // n >= 0: every row, which is an output, tells the log probability of the prompt's next token and
  // of the n most likely ones. The rows end no later than the prompt.
  int32_t prompt_logprobs = -1;
  // Of the rows, the last ones, whose tokens are guesses of what the row before each gives; with
  // `draws`, and an output for each of them and the row before. The result lists what these rows
  // give as far as the guesses were right, a token at least: the tokens are those of steps without
  // guesses. The slot's length and newest token follow, also in a batch that is enqueued already;
  // wrong positions are taken back, but no pages, since whoever gives them out counts with the most
  // and cuts them by an update. Under mirostat, whose state goes from draw to draw, none is right.
  int32_t guesses = 0;
  bool masked = false;  // its draws wait for Executable::SetMask
};

// Parts take effect in this order; copies one after the other. Rows are the sequences' in their
// order: a prefill chunk has several, a decoding sequence has one, and its guesses. A slot stands
// in a batch once.
//
// Padding is inert. A Batch has none: its lists end with its counts. A back end may run more rows
// than there are (a captured graph has one size): they belong to no sequence, and write no page, no
// slot's state and no row of a port below the counts. Nor does a row depend on what lies beyond the
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

// What a slot gave: a token, or more than one where several were checked at once.
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

// In the order of the batch's sequences.
struct BatchResult {
  std::vector<SampledTokens> sampled;
  std::vector<PromptLogprobs> prompt_logprobs;
};

}  // namespace skein::kernels
