// Text to token ids and back, as a Hugging Face tokenizer.json, a SentencePiece model or a GGUF
// file says.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/range.h"

namespace skein::model {

struct EncodeOptions {
  // Apply the tokenizer's post-processor (BOS and the like).
  bool add_special_tokens = true;
  // Special tokens written out in the text ("<|endoftext|>") become their id; otherwise they are
  // plain text.
  bool parse_special = false;
  // Bytes of the text, sorted and disjoint, in which none is written out: what touches one of these
  // is plain text. Borrowed.
  absl::Span<const Range> plain = {};
};

// Immutable after load; any thread may use it.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // Token ids of `text`. `text` is UTF-8; InvalidArgument with the byte offset when it is not, or
  // when it is longer than 1 GiB.
  // Linear in the text's length (times the logarithm of the longest pre-token).
  virtual absl::StatusOr<std::vector<int32_t>> Encode(std::string_view text,
                                                      const EncodeOptions& options) const = 0;

  // The bytes that token `id` stands for; empty for special tokens when `skip_special` and for ids
  // outside of the vocabulary. A token's bytes may end inside a UTF-8 character.
  virtual std::string TokenBytes(int32_t id, bool skip_special = true) const = 0;

  // One more than the highest id.
  virtual int32_t vocab_size() const = 0;
  virtual bool IsSpecial(int32_t id) const = 0;
};

// Reads a folder's tokenizer.json, or where there is none its tokenizer.model (a SentencePiece
// model, with what tokenizer_config.json and added_tokens.json say of it), or the tokenizer in a
// GGUF file. Errors: NotFound names the path; InvalidArgument names file and field; Unimplemented
// names a model, pre-tokenizer or post-processor that is not supported.
absl::StatusOr<std::unique_ptr<Tokenizer>> LoadTokenizer(const std::string& model);

// Turns tokens into text piece by piece. No piece splits a UTF-8 character. Bytes that can belong
// to no character become U+FFFD, as in Python's errors="replace".
class StreamingDetokenizer {
 public:
  explicit StreamingDetokenizer(const Tokenizer* tokenizer) : tokenizer_(tokenizer) {}

  // The text that becomes complete by this token; may be empty.
  std::string Push(int32_t id) { return PushBytes(tokenizer_->TokenBytes(id)); }
  // The same for bytes that are no longer tokens, such as those before a stop string.
  std::string PushBytes(std::string_view bytes);
  // The rest, after the last token: an unfinished character becomes U+FFFD.
  std::string Finish();

 private:
  const Tokenizer* tokenizer_;
  std::string pending_;  // bytes of an unfinished character, at most 3
};

}  // namespace skein::model
