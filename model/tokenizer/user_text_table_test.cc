// Every row of testdata/user_text_table.json, which the `tokenizers` library made: special tokens
// that are looked for behind the normalizer, in texts of which users wrote a part.
#include <cctype>
#include <cstdint>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/range.h"
#include "base/test_util.h"
#include "model/tokenizer/tokenizer.h"
#include "model/tokenizer/tokenizer_json.h"

namespace skein::model {
namespace {

using ::nlohmann::json;

const json& Table() {
  static const json table =
      json::parse(std::ifstream("model/tokenizer/testdata/user_text_table.json"));
  return table;
}

class UserTextTable : public testing::TestWithParam<size_t> {};

TEST_P(UserTextTable, IsEncodedAsTheLibraryWould) {
  const json& variant = Table()[GetParam()];
  json document = json::parse(std::ifstream("checkpoints/bard/tokenizer.json"));
  for (const auto& [pointer, value] : variant["patch"].items()) {
    document[json::json_pointer(pointer)] = value;
  }
  SKEIN_ASSERT_OK_AND_ASSIGN(const auto tokenizer, ParseTokenizerJson(document.dump()));
  ASSERT_GT(variant["rows"].size(), 200u);
  for (const json& row : variant["rows"]) {
    std::vector<Range> user;
    for (const json& range : row["user"]) user.push_back({range[0], range[1]});
    SCOPED_TRACE(row.dump());
    SKEIN_ASSERT_OK_AND_ASSIGN(
        const std::vector<int32_t> ids,
        tokenizer->Encode(row["text"].get<std::string>(),
                          {.add_special_tokens = false, .parse_special = true, .plain = user}));
    EXPECT_EQ(ids, row["ids"].get<std::vector<int32_t>>());
  }
}

INSTANTIATE_TEST_SUITE_P(All, UserTextTable, testing::Range<size_t>(0, Table().size()),
                         [](const auto& info) {
                           std::string name;
                           for (const char c :
                                Table()[info.param]["name"].template get<std::string>()) {
                             if (std::isalnum(static_cast<unsigned char>(c))) name += c;
                           }
                           return name;
                         });

}  // namespace
}  // namespace skein::model
