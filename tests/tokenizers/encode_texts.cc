// encode_texts MODEL: reads a JSON array of texts from standard input, writes one of objects: the
// ids that each text has without affixes, and what they decode to.
#include <cstdint>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "model/tokenizer/tokenizer.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: encode_texts MODEL < TEXTS.json\n";
    return 2;
  }
  const auto tokenizer = skein::model::LoadTokenizer(argv[1]);
  if (!tokenizer.ok()) {
    std::cerr << tokenizer.status().message() << "\n";
    return 1;
  }
  nlohmann::json rows = nlohmann::json::array();
  for (const nlohmann::json& text : nlohmann::json::parse(std::cin)) {
    const auto ids = (*tokenizer)->Encode(text.get<std::string>(), {.add_special_tokens = false});
    if (!ids.ok()) {
      std::cerr << ids.status().message() << "\n";
      return 1;
    }
    skein::model::StreamingDetokenizer detokenizer(tokenizer->get());
    std::string decoded;
    for (const int32_t id : *ids) decoded += detokenizer.Push(id);
    rows.push_back({{"ids", *ids}, {"decoded", decoded + detokenizer.Finish()}});
  }
  std::cout << rows.dump() << "\n";
  return 0;
}
