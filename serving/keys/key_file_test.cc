#include "serving/keys/key_file.h"

#include <sys/stat.h>

#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "base/test_util.h"

namespace skein::serving {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;

// Of "abc" and of "", as FIPS 180-4 and everybody else has them.
constexpr char kAbc[] = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
constexpr char kNothing[] =
    "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

std::string NewPath(const std::string& name) {
  const std::string path = absl::StrCat(::testing::TempDir(), "/", name);
  std::filesystem::remove(path);
  std::filesystem::remove(path + ".new");
  return path;
}

TEST(KeyFileTest, KeysAreRandomAndHaveTheirForm) {
  SKEIN_ASSERT_OK_AND_ASSIGN(const std::string one, NewApiKey());
  SKEIN_ASSERT_OK_AND_ASSIGN(const std::string other, NewApiKey());
  EXPECT_THAT(one, MatchesRegex("sk-skein-[A-Za-z0-9_-]{43}"));
  EXPECT_NE(one, other);
}

TEST(KeyFileTest, LinesHaveNamesHashesAndLimits) {
  SKEIN_ASSERT_OK_AND_ASSIGN(
      const std::vector<ApiKey> keys,
      ParseKeys(absl::StrCat("# all of them\n\n  alice\t", kAbc,
                             " requests-per-minute=60 tokens-per-minute=20000 streams=4 # hers\r\n",
                             "bob@x.org ", kNothing, " models=bard,hamlet disabled=yes")));
  ASSERT_EQ(keys.size(), 2u);
  EXPECT_EQ(
      keys[0],
      (ApiKey{.name = "alice",
              .hash = HashOfKey("abc"),
              .limits = {.requests_per_minute = 60, .tokens_per_minute = 20000, .streams = 4}}));
  EXPECT_EQ(keys[1], (ApiKey{.name = "bob@x.org",
                             .hash = HashOfKey(""),
                             .models = {"bard", "hamlet"},
                             .disabled = true}));
  for (const ApiKey& key : keys) EXPECT_EQ(ParseKeys(KeyLine(key)).value(), std::vector{key});
}

TEST(KeyFileTest, ErrorsNameLineAndReason) {
  const std::string hash = kAbc;
  const struct {
    std::string text;
    const char* says;
  } cases[] = {
      {"alice", "line 1: sha256: and 64 hex digits are expected"},
      {"\n#\nalice sk-skein-secret", "line 3: sha256: and 64 hex digits are expected"},
      {"alice " + hash + "0", "line 1: sha256: and 64 hex digits"},
      {"alice " + hash.substr(0, hash.size() - 1) + "g", "line 1: sha256: and 64 hex digits"},
      {"ali/ce " + hash, "line 1: a name has 1 to 64 letters"},
      {std::string(65, 'a') + " " + hash, "line 1: a name has 1 to 64 letters"},
      {"a " + hash + " streams", "line 1: settings are NAME=VALUE"},
      {"a " + hash + " streams=0", "line 1: streams: a whole number of at least 1"},
      {"a " + hash + " streams=2x", "line 1: streams: a whole number"},
      {"a " + hash + " streams=1 streams=1", "line 1: streams is said twice"},
      {"a " + hash + " speed=1", "line 1: speed: there is no such setting"},
      {"a " + hash + " disabled=perhaps", "line 1: disabled: yes or no"},
      {"a " + hash + " models=,", "line 1: models: names of models"},
      {"a " + hash + "\na " + kNothing, "line 2: a is named twice"},
      {"a " + hash + "\nb " + hash, "line 2: the key of b has another name, too"},
  };
  for (const auto& [text, says] : cases) {
    EXPECT_THAT(ParseKeys(text), StatusIs(absl::StatusCode::kInvalidArgument,
                                          AllOf(HasSubstr(says), Not(HasSubstr("secret")))))
        << text;
  }
}

TEST(KeyFileTest, FilesAreBounded) {
  std::string text;
  for (int i = 0; i < kMaxKeys; ++i) {
    absl::StrAppend(&text, KeyLine({.name = absl::StrCat(i), .hash = HashOfKey(absl::StrCat(i))}),
                    "\n");
  }
  EXPECT_EQ(ParseKeys(text)->size(), static_cast<size_t>(kMaxKeys));
  EXPECT_THAT(ParseKeys(text + "more " + kAbc),
              StatusIs(absl::StatusCode::kInvalidArgument, "line 4097: more than 4096 keys"));
  const std::string path = NewPath("large");
  SKEIN_ASSERT_OK(WriteFile(path, std::string(kMaxKeyFileBytes + 1, '\n')));
  EXPECT_THAT(ReadKeys(path), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(path)));
}

TEST(KeyFileTest, ChangesLeaveOtherLinesAndNothingIsForOthers) {
  const std::string path = NewPath("keys");
  const std::string before = absl::StrCat("# ours\nalice   ", kAbc, " # hers");
  SKEIN_ASSERT_OK(WriteFile(path, before));
  SKEIN_ASSERT_OK(AddKey(path, {.name = "bob", .hash = HashOfKey(""), .limits = {.streams = 2}}));
  const std::string bob = absl::StrCat("bob ", kNothing, " streams=2\n");
  EXPECT_EQ(ReadFileOrEmpty(path), absl::StrCat(before, "\n", bob));
  struct stat info;
  ASSERT_EQ(stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0640u);  // 0644 of before, but for others

  EXPECT_THAT(AddKey(path, {.name = "bob", .hash = HashOfKey("b")}),
              StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr("a key of bob already")));
  EXPECT_THAT(RemoveKey(path, "carol"),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("no key of carol")));
  SKEIN_EXPECT_OK(RemoveKey(path, "alice"));
  EXPECT_EQ(ReadFileOrEmpty(path), "# ours\n" + bob);
  EXPECT_FALSE(std::filesystem::exists(path + ".new"));
}

// As of a coordinator that runs as another user.
TEST(KeyFileTest, ChangesLeaveTheModeAndTheGroup) {
  const std::string path = NewPath("shared");
  SKEIN_ASSERT_OK(AddKey(path, {.name = "a", .hash = HashOfKey("a")}));
  struct stat info;
  ASSERT_EQ(stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  ASSERT_EQ(chmod(path.c_str(), 0440), 0);
  const bool changed = chown(path.c_str(), 0, 1) == 0;  // only root may
  SKEIN_ASSERT_OK(AddKey(path, {.name = "b", .hash = HashOfKey("b")}));
  ASSERT_EQ(stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0440u);
  if (changed) EXPECT_EQ(info.st_gid, 1u);
}

TEST(KeyFileTest, AFileIsMadeForTheFirstKeyAlone) {
  const std::string path = NewPath("first");
  EXPECT_THAT(RemoveKey(path, "a"), StatusIs(absl::StatusCode::kNotFound, HasSubstr(path)));
  EXPECT_FALSE(std::filesystem::exists(path));
  SKEIN_EXPECT_OK(AddKey(path, {.name = "a", .hash = HashOfKey("abc")}));
  EXPECT_EQ(ReadFileOrEmpty(path), absl::StrCat("a ", kAbc, "\n"));
}

TEST(KeyFileTest, BrokenFilesAndThoseThatAreBeingChangedStayAsTheyAre) {
  const std::string path = NewPath("broken");
  SKEIN_ASSERT_OK(WriteFile(path, "alice nothing\n"));
  EXPECT_THAT(AddKey(path, {.name = "bob"}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("line 1: ")));
  EXPECT_EQ(ReadFileOrEmpty(path), "alice nothing\n");
  SKEIN_ASSERT_OK(WriteFile(path, ""));
  SKEIN_ASSERT_OK(WriteFile(path + ".new", "another's"));
  EXPECT_THAT(AddKey(path, {.name = "bob"}),
              StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr(".new is there")));
  EXPECT_EQ(ReadFileOrEmpty(path), "");
  EXPECT_EQ(ReadFileOrEmpty(path + ".new"), "another's");
}

}  // namespace
}  // namespace skein::serving
