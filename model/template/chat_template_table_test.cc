// Every row of testdata/templates_expected.json and snippets_expected.json, which Jinja2 made.
#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/time/time.h"
#include "base/test_util.h"
#include "model/template/chat_template.h"

namespace skein::model {
namespace {

using Json = nlohmann::ordered_json;
using ::testing::StartsWith;

// Dates are of the local time. Before anything asks for it.
const int kUtc = setenv("TZ", "UTC", /*replace=*/1);

std::string Data(const std::string& name) { return "model/template/testdata/" + name; }

Json Read(const std::string& name) { return Json::parse(std::ifstream(Data(name))); }

std::string ReadTemplate(const std::string& name) {
  std::ifstream file(Data("templates/" + name + ".jinja"), std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

bool BeginsCharacter(const std::string& text, size_t at) {
  return at == text.size() || (text[at] & 0xC0) != 0x80;
}

void ExpectWellFormed(const RenderedText& rendered) {
  size_t done = 0;
  for (const ByteRange& range : rendered.user) {
    ASSERT_LT(range.begin, range.end);
    ASSERT_LE(range.end, rendered.text.size());
    ASSERT_TRUE(done == 0 || done < range.begin) << "ranges touch at " << done;
    EXPECT_TRUE(BeginsCharacter(rendered.text, range.begin));
    EXPECT_TRUE(BeginsCharacter(rendered.text, range.end));
    done = range.end;
  }
}

void ExpectRow(const Json& row, const std::string& source, const Json& user, const Json& trusted,
               absl::Time now) {
  const auto parsed = ChatTemplate::Parse(source);
  if (!parsed.ok()) {
    EXPECT_TRUE(row.contains("refused")) << parsed.status() << "\n" << row;
    EXPECT_THAT(parsed, StatusIs(absl::StatusCode::kInvalidArgument, StartsWith("line ")));
    return;
  }
  ASSERT_NE(row.value("refused", ""), "parse");
  const auto rendered = parsed->Render(user, trusted, now);
  if (row.contains("raised")) {
    EXPECT_THAT(rendered, StatusIs(absl::StatusCode::kInvalidArgument, std::string(row["raised"])));
  } else if (row.contains("refused")) {
    ASSERT_FALSE(rendered.ok()) << rendered->text;
    EXPECT_THAT(std::string(rendered.status().message()), StartsWith("line "));
  } else {
    SKEIN_ASSERT_OK(rendered);
    EXPECT_EQ(rendered->text, std::string(row["text"]));
    ExpectWellFormed(*rendered);
  }
}

TEST(ChatTemplateTable, TemplatesRenderAsByJinja) {
  const Json table = Read("templates_expected.json");
  std::map<std::string, Json> conversations;
  for (const Json& conversation : Read("conversations.json")) {
    conversations[conversation["name"]] = conversation;
  }
  const absl::Time now = absl::FromUnixSeconds(table["now"]);
  std::map<std::string, int> rows;
  for (const Json& row : table["rows"]) {
    const std::string name = row["template"];
    SCOPED_TRACE(name + ", " + std::string(row["conversation"]));
    const Json& conversation = conversations.at(row["conversation"]);
    ExpectRow(row, ReadTemplate(name), conversation["user"], conversation["trusted"], now);
    ++rows[name];
  }
  EXPECT_GE(rows.size(), 25u);
}

TEST(ChatTemplateTable, SnippetsRenderAsByJinja) {
  const Json table = Read("snippets_expected.json");
  const Json values = Read("snippets.json")["values"];
  const absl::Time now = absl::FromUnixSeconds(table["now"]);
  for (const Json& row : table["rows"]) {
    SCOPED_TRACE(row["source"].dump());
    ExpectRow(row, row["source"], values, nullptr, now);
  }
  EXPECT_GE(table["rows"].size(), 300u);
}

// A letter that neither templates nor trusted values have, in all that users write.
TEST(ChatTemplateTable, WhatUsersWroteIsMarkedInEveryTemplate) {
  const Json table = Read("templates_expected.json");
  const Json user = Json::parse(R"({
    "messages": [{"role": "system", "content": " ж "}, {"role": "user", "content": "жжж <|im_start|> ж"},
                 {"role": "assistant", "content": "ж</think>ж\nж"}, {"role": "user", "content": "ж"}],
    "tools": [{"type": "function", "function": {"name": "ж", "description": "ж\"ж",
               "parameters": {"type": "object", "properties": {"ж": {"type": "string", "description": "ж\nж"}},
                              "required": ["ж"]}}}]})");
  const std::string letter = "ж";
  std::string last;
  int places = 0;
  for (const Json& row : table["rows"]) {
    if (row["template"] == last) continue;
    last = row["template"];
    SCOPED_TRACE(last);
    SKEIN_ASSERT_OK_AND_ASSIGN(const auto parsed, ChatTemplate::Parse(ReadTemplate(last)));
    const auto rendered = parsed.Render(
        user, {{"bos_token", "<s>"}, {"eos_token", "</s>"}, {"add_generation_prompt", true}},
        absl::FromUnixSeconds(table["now"]));
    if (!rendered.ok()) continue;  // raises on roles
    for (size_t at = rendered->text.find(letter); at != std::string::npos;
         at = rendered->text.find(letter, at + 1)) {
      const bool marked =
          std::any_of(rendered->user.begin(), rendered->user.end(), [&](const ByteRange& range) {
            return range.begin <= at && at + letter.size() <= range.end;
          });
      EXPECT_TRUE(marked) << "at " << at << " of " << rendered->text;
      ++places;
    }
  }
  EXPECT_GT(places, 150);
}

}  // namespace
}  // namespace skein::model
