#include "model/tokenizer/utf8.h"

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model/tokenizer/tokenizer.h"

namespace skein::model {
namespace {

std::string FromHex(const std::string& hex) {
  std::string bytes;
  for (size_t i = 0; i < hex.size(); i += 2) {
    bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  }
  return bytes;
}

struct Row {
  std::string bytes;
  std::string replaced;  // by Python
  size_t invalid_at;
};

// What testdata/make_utf8_table.py wrote.
std::vector<Row> ReadTable() {
  std::ifstream file("model/tokenizer/testdata/utf8_table.json");
  std::vector<Row> rows;
  for (const auto& row : nlohmann::json::parse(file)) {
    rows.push_back({FromHex(row["hex"]), row["text"],
                    row.value<size_t>("invalid_at", std::string_view::npos)});
  }
  return rows;
}

// Ids are indices of chunks of bytes; the last one is a special token.
class ChunkTokenizer final : public Tokenizer {
 public:
  explicit ChunkTokenizer(std::vector<std::string> chunks) : chunks_(std::move(chunks)) {}

  absl::StatusOr<std::vector<int32_t>> Encode(std::string_view,
                                              const EncodeOptions&) const override {
    return absl::UnimplementedError("only decodes");
  }
  std::string TokenBytes(int32_t id, bool skip_special) const override {
    if (id < 0 || id > vocab_size() - 1) return "";
    if (IsSpecial(id)) return skip_special ? "" : "<|special|>";
    return chunks_[id];
  }
  int32_t vocab_size() const override { return static_cast<int32_t>(chunks_.size()) + 1; }
  bool IsSpecial(int32_t id) const override { return id == vocab_size() - 1; }

 private:
  std::vector<std::string> chunks_;
};

// Streams the chunks; every piece that comes out must be whole characters.
std::string Stream(const std::vector<std::string>& chunks) {
  const ChunkTokenizer tokenizer(chunks);
  StreamingDetokenizer detokenizer(&tokenizer);
  std::string text;
  for (size_t i = 0; i < chunks.size(); ++i) {
    const std::string piece = detokenizer.Push(static_cast<int32_t>(i));
    EXPECT_EQ(FindInvalidUtf8(piece), std::string_view::npos);
    text += piece;
    EXPECT_EQ(detokenizer.Push(tokenizer.vocab_size() - 1), "") << "a special token";
    EXPECT_EQ(detokenizer.Push(-1), "") << "no token";
  }
  text += detokenizer.Finish();
  EXPECT_EQ(detokenizer.Finish(), "") << "finished before";
  return text;
}

TEST(Utf8, FindsWhatPythonCallsInvalid) {
  const std::vector<Row> table = ReadTable();
  ASSERT_GT(table.size(), 1000u);
  for (const Row& row : table) {
    EXPECT_EQ(FindInvalidUtf8(row.bytes), row.invalid_at) << testing::PrintToString(row.bytes);
  }
}

TEST(StreamingDetokenizer, ReplacesAsPythonDoesHoweverTheBytesAreCut) {
  for (const Row& row : ReadTable()) {
    SCOPED_TRACE(testing::PrintToString(row.bytes));
    for (size_t cut = 0; cut <= row.bytes.size(); ++cut) {
      EXPECT_EQ(Stream({row.bytes.substr(0, cut), row.bytes.substr(cut)}), row.replaced);
    }
    std::vector<std::string> single;
    for (const char c : row.bytes) single.emplace_back(1, c);
    EXPECT_EQ(Stream(single), row.replaced);
  }
}

TEST(StreamingDetokenizer, HandsOutACharacterWithItsLastByte) {
  const ChunkTokenizer tokenizer({"a\xF0", "\x9F\x91", "\x8D\xC3", "\xA9", "\xE2\x82"});
  StreamingDetokenizer detokenizer(&tokenizer);
  EXPECT_EQ(detokenizer.Push(0), "a");
  EXPECT_EQ(detokenizer.Push(1), "");
  EXPECT_EQ(detokenizer.Push(2), "\U0001F44D");
  EXPECT_EQ(detokenizer.Push(3), "\u00E9");
  EXPECT_EQ(detokenizer.Push(4), "");
  EXPECT_EQ(detokenizer.Finish(), "\uFFFD");
  EXPECT_EQ(detokenizer.Push(0), "a") << "nothing is left over for the next text";
}

}  // namespace
}  // namespace skein::model
