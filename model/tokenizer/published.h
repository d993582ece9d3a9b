// How published models of BPE over bytes cut text, by the names that GGUF files have for it
// (tokenizer.ggml.pre).
#pragma once

#include <string_view>
#include <vector>

namespace skein::model {

struct PublishedPreTokenizer {
  std::vector<std::string_view> names;     // of one meaning
  std::vector<std::string_view> patterns;  // one after the other
  bool ignore_merges = false;
  bool add_bos = false;  // where the file does not say
};

const std::vector<PublishedPreTokenizer>& PublishedPreTokenizers();

}  // namespace skein::model
