#include "model/format/identity.h"

#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "base/test_util.h"
#include "model/format/open.h"
#include "model/format/safetensors_writer.h"
#include "model/format/test_files.h"
#include "model/synthetic/synthetic.h"

namespace skein::model {
namespace {

using ::testing::HasSubstr;

// A model in a fresh folder.
std::string MakeFolder(const ModelConfig& config, int64_t max_shard_bytes = 1 << 30) {
  const std::string folder = FreshFolder();
  SKEIN_EXPECT_OK(
      WriteModelFolder(config, *MakeSyntheticWeights(config, "x"), folder, max_shard_bytes));
  WriteTestFile(folder + "/tokenizer.json", "{}");
  return folder;
}

// Replaces the weights by one tensor of 4 bytes.
void OneTensor(const std::string& folder, const std::string& name, const std::string& dtype,
               const std::string& shape) {
  const std::string header = "{\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":" + shape +
                             ",\"data_offsets\":[0,4]}}";
  WriteTestFile(folder + "/model.safetensors", SafetensorsBytes(header, "1234"));
}

std::string Identity(const std::string& folder) {
  const auto source = OpenTensorSource(folder);
  SKEIN_EXPECT_OK(source);
  const absl::StatusOr<std::string> identity = ComputeModelIdentity(folder, **source);
  SKEIN_EXPECT_OK(identity);
  return identity.value_or("");
}

TEST(ModelIdentityTest, EveryPartCounts) {
  ModelConfig config = ParseSyntheticSpec("synthetic:tiny")->config;
  config.num_layers = 2;
  const std::string same = MakeFolder(config);
  const std::map<std::string, std::function<void(const std::string&)>> changes = {
      {"config", [](const std::string& f) { WriteTestFile(f + "/config.json", "{ }"); }},
      {"tokenizer", [](const std::string& f) { WriteTestFile(f + "/tokenizer.json", "{ }"); }},
      {"empty tokenizer", [](const std::string& f) { WriteTestFile(f + "/tokenizer.json", ""); }},
      {"no tokenizer",
       [](const std::string& f) { std::filesystem::remove(f + "/tokenizer.json"); }},
      {"SentencePiece",
       [](const std::string& f) {
         std::filesystem::rename(f + "/tokenizer.json", f + "/tokenizer.model");
       }},
      {"SentencePiece's settings",
       [](const std::string& f) {
         std::filesystem::rename(f + "/tokenizer.json", f + "/tokenizer.model");
         WriteTestFile(f + "/tokenizer_config.json", "{}");
       }},
      {"SentencePiece's added tokens",
       [](const std::string& f) {
         std::filesystem::rename(f + "/tokenizer.json", f + "/tokenizer.model");
         WriteTestFile(f + "/added_tokens.json", "{}");
       }},
      {"tensor name", [](const std::string& f) { OneTensor(f, "b", "F16", "[2]"); }},
      {"dtype", [](const std::string& f) { OneTensor(f, "a", "F32", "[1]"); }},
      {"shape", [](const std::string& f) { OneTensor(f, "a", "F16", "[1,2]"); }},
      {"one tensor", [](const std::string& f) { OneTensor(f, "a", "F16", "[2]"); }},
      {"file size", [](const std::string& f) { OneTensor(f, "a", "F16", "[2] "); }},
  };
  std::map<std::string, std::string> seen = {{Identity(same), "same"}};
  EXPECT_EQ(Identity(MakeFolder(config)), seen.begin()->first);
  EXPECT_EQ(seen.begin()->first.size(), 32u);
  for (const auto& [name, change] : changes) {
    const std::string folder = MakeFolder(config);
    change(folder);
    const auto [other, inserted] = seen.emplace(Identity(folder), name);
    EXPECT_TRUE(inserted) << name << " gives the identity of " << other->second;
  }
  EXPECT_TRUE(seen.emplace(Identity(MakeFolder(config, 100'000)), "shards").second);
}

TEST(ModelIdentityTest, WithoutFiles) {
  SKEIN_ASSERT_OK_AND_ASSIGN(SyntheticModel tiny, ParseSyntheticSpec("synthetic:tiny"));
  SKEIN_ASSERT_OK_AND_ASSIGN(SyntheticModel large, ParseSyntheticSpec("synthetic:llama3-1b"));
  SKEIN_ASSERT_OK_AND_ASSIGN(std::string a, ComputeModelIdentity("", *tiny.weights));
  SKEIN_ASSERT_OK_AND_ASSIGN(std::string b, ComputeModelIdentity("", *large.weights));
  EXPECT_NE(a, b);
  EXPECT_THAT(ComputeModelIdentity("/nonexistent", *tiny.weights),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("/nonexistent/config.json")));
}

TEST(SliceHasherTest, OrderAndThreadsDoNotCount) {
  const std::vector<std::byte> bytes(1000, std::byte{7});
  const auto add = [&](SliceHasher& hasher, int64_t i) {
    const std::vector<Range> slice = {{i, i + 10}, {0, 50}};
    hasher.Add(i % 2 == 0 ? "a" : "b", slice, bytes);
  };
  SliceHasher forward;
  for (int64_t i = 0; i < 100; ++i) add(forward, i);
  SliceHasher backward;
  for (int64_t i = 100; i-- > 0;) add(backward, i);
  SliceHasher threaded;
  std::vector<std::thread> threads;
  for (int64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int64_t i = t; i < 100; i += 4) add(threaded, i);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(forward.Digest(), backward.Digest());
  EXPECT_EQ(forward.Digest(), threaded.Digest());
  add(forward, 3);
  EXPECT_NE(forward.Digest(), backward.Digest());
}

TEST(SliceHasherTest, NameRangesAndBytesCount) {
  const std::vector<std::byte> bytes(64);
  std::vector<std::byte> other = bytes;
  other[63] = std::byte{1};
  const struct {
    const char* tensor;
    std::vector<Range> slice;
    const std::vector<std::byte>* bytes;
  } kCases[] = {
      {"a", {{0, 4}, {0, 8}}, &bytes}, {"b", {{0, 4}, {0, 8}}, &bytes},
      {"a", {{4, 8}, {0, 8}}, &bytes}, {"a", {{0, 4}, {8, 16}}, &bytes},
      {"a", {{0, 32}}, &bytes},        {"a", {{0, 4}, {0, 8}}, &other},
      {"", {{0, 4}, {0, 8}}, &bytes},
  };
  std::map<std::string, int> digests = {{SliceHasher().Digest(), 0}};
  for (const auto& test : kCases) {
    SliceHasher hasher;
    hasher.Add(test.tensor, test.slice, *test.bytes);
    ++digests[hasher.Digest()];
    EXPECT_EQ(hasher.Digest().size(), 48u);
  }
  EXPECT_EQ(digests.size(), std::size(kCases) + 1);
}

}  // namespace
}  // namespace skein::model
