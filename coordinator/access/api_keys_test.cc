#include "coordinator/access/api_keys.h"

#include <filesystem>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "base/test_util.h"

namespace skein::coordinator {
namespace {

using ::testing::HasSubstr;

std::string Line(const std::string& name, const std::string& key, const std::string& more = "") {
  return absl::StrCat(serving::KeyLine({.name = name, .hash = serving::HashOfKey(key)}), more,
                      "\n");
}

class ApiKeysTest : public ::testing::Test {
 protected:
  void Write(const std::string& text) { SKEIN_ASSERT_OK(WriteFile(path_, text)); }

  const std::string path_ = ::testing::TempDir() + "/api_keys";
};

TEST_F(ApiKeysTest, KeysAreFoundByWhatTheyAre) {
  Write(Line("alice", "sk-a") + Line("bob", "sk-b") + Line("carol", "sk-c"));
  SKEIN_ASSERT_OK_AND_ASSIGN(const std::unique_ptr<ApiKeys> keys, ApiKeys::Load(path_));
  for (const auto& [key, name] :
       {std::pair("sk-a", "alice"), std::pair("sk-b", "bob"), std::pair("sk-c", "carol")}) {
    const auto found = keys->Find(key);
    ASSERT_NE(found, nullptr) << key;
    EXPECT_EQ(found->name, name);
  }
  for (const char* const other : {"", "sk-", "sk-aa", "sk-A", "alice"}) {
    EXPECT_EQ(keys->Find(other), nullptr) << other;
  }
}

TEST_F(ApiKeysTest, ReloadsReplaceAllAtOnceButForWhoHoldsAKey) {
  Write(Line("alice", "sk-a", " streams=1") + Line("bob", "sk-b"));
  SKEIN_ASSERT_OK_AND_ASSIGN(const std::unique_ptr<ApiKeys> keys, ApiKeys::Load(path_));
  const auto held = keys->Find("sk-a");
  Write(Line("alice", "sk-a", " streams=2") + Line("carol", "sk-c"));
  SKEIN_EXPECT_OK(keys->Reload());
  EXPECT_EQ(held->limits.streams, 1);
  EXPECT_EQ(keys->Find("sk-a")->limits.streams, 2);
  EXPECT_EQ(keys->Find("sk-b"), nullptr);
  EXPECT_NE(keys->Find("sk-c"), nullptr);
}

TEST_F(ApiKeysTest, BrokenFilesAreRefusedAndChangeNothing) {
  Write(Line("alice", "sk-a"));
  SKEIN_ASSERT_OK_AND_ASSIGN(const std::unique_ptr<ApiKeys> keys, ApiKeys::Load(path_));
  Write(Line("bob", "sk-b") + "carol\n");
  EXPECT_THAT(keys->Reload(), StatusIs(absl::StatusCode::kInvalidArgument,
                                       HasSubstr(path_ + ": line 2: sha256: and 64")));
  EXPECT_NE(keys->Find("sk-a"), nullptr);
  EXPECT_EQ(keys->Find("sk-b"), nullptr);
  EXPECT_THAT(ApiKeys::Load(path_),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(path_ + ": line 2: ")));
  std::filesystem::remove(path_);
  EXPECT_THAT(keys->Reload(), StatusIs(absl::StatusCode::kNotFound, HasSubstr(path_)));
  EXPECT_NE(keys->Find("sk-a"), nullptr);
}

}  // namespace
}  // namespace skein::coordinator
