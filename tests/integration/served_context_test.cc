// Rotations that depend on the length are chosen once, by the context that is served.
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/test_util.h"
#include "tests/cluster/cluster.h"

namespace skein::testing {
namespace {

constexpr char kBard[] = "checkpoints/bard";

// bard, trained with 1,024 tokens, with RoPE for four times as many.
std::string DynamicBard() {
  const std::string folder = ::testing::TempDir() + "/dynamic";
  std::filesystem::create_directories(folder);
  for (const char* file : {"model.safetensors", "tokenizer.json"}) {
    std::filesystem::copy_file(absl::StrCat(kBard, "/", file), folder + "/" + file,
                               std::filesystem::copy_options::overwrite_existing);
  }
  nlohmann::json config = nlohmann::json::parse(std::ifstream(absl::StrCat(kBard, "/config.json")));
  config["rope_parameters"] = {{"rope_theta", 10000.0}, {"rope_type", "dynamic"}, {"factor", 4.0}};
  std::ofstream(folder + "/config.json") << config.dump();
  return folder;
}

std::vector<uint32_t> Answer(const std::string& model, int context, const std::string& layout) {
  Cluster cluster({.model = model,
                   .layout = layout,
                   .coordinator_flags = {absl::StrCat("--context-length=", context)}});
  cluster.StartJob(2);
  EXPECT_TRUE(cluster.WaitForServing(1)) << cluster.coordinator().Output();
  const auto answer = cluster.Generate(GreedyRequest("KING HENRY VI:\nWhat", 64));
  EXPECT_TRUE(answer.status.ok()) << answer.status.error_message();
  EXPECT_EQ(answer.tokens.size(), 64u);
  return answer.tokens;
}

TEST(ServedContextTest, FrequenciesFollowIt) {
  const std::string dynamic = DynamicBard();
  const std::vector<uint32_t> plain = Answer(kBard, 1024, "tp=2");
  EXPECT_EQ(Answer(dynamic, 1024, "tp=2"), plain);
  const std::vector<uint32_t> longer = Answer(dynamic, 4096, "tp=2");
  EXPECT_NE(longer, plain);
  EXPECT_EQ(Answer(dynamic, 4096, "pp=2"), longer);
}

}  // namespace
}  // namespace skein::testing
