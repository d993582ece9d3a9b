// Embeddings of a job's layouts are what transformers' hidden states pool to.
#include <grpcpp/grpcpp.h>

#include <chrono>
#include <cmath>
#include <fstream>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/cluster/cluster.h"

namespace skein::testing {
namespace {

using ::nlohmann::json;

// Float32 there and here, but bard's weights are BF16 and its hops are not.
constexpr double kMaxRelativeError = 1e-4;

v1::GenerateRequest RequestOf(const json& ids, v1::Embedding::Pooling pooling, bool raw) {
  v1::GenerateRequest request;
  for (const json& id : ids) request.mutable_prompt_tokens()->add_ids(id.get<uint32_t>());
  request.mutable_embedding()->set_pooling(pooling);
  request.mutable_embedding()->set_raw(raw);
  return request;
}

std::vector<float> Embed(Cluster& cluster, const v1::GenerateRequest& request) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
  const auto stream = cluster.inference().Generate(&context, request);
  std::vector<float> embedding;
  int finished = 0;
  v1::GenerateEvent event;
  while (stream->Read(&event)) {
    const auto& values = event.tokens().embedding();
    embedding.insert(embedding.end(), values.begin(), values.end());
    EXPECT_EQ(event.tokens().text() + event.error().message(), "");
    EXPECT_EQ(event.tokens().tokens_size(), 0);
    if (event.has_finished()) {
      ++finished;
      EXPECT_EQ(event.finished().usage().completion_tokens(), 0u);
    }
  }
  const grpc::Status status = stream->Finish();
  EXPECT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(finished, 1);
  return embedding;
}

double Norm(const std::vector<float>& values) {
  double squares = 0;
  for (const float value : values) squares += double{value} * double{value};
  return std::sqrt(squares);
}

double RelativeError(const std::vector<float>& got, const std::vector<float>& want) {
  if (got.size() != want.size()) return INFINITY;
  std::vector<float> differences;
  for (size_t i = 0; i < got.size(); ++i) differences.push_back(got[i] - want[i]);
  return Norm(differences) / Norm(want);
}

json Cases() {
  std::ifstream file("tests/golden/embeddings.json");
  return json::parse(file).at("cases");
}

// Prompts of 289 tokens go in chunks of 16, and stand in the prefix cache when they come again.
TEST(EmbeddingsTest, AreTransformersOnEveryLayout) {
  for (const char* const layout : {"tp=1", "tp=2,pp=2"}) {
    SCOPED_TRACE(layout);
    Cluster cluster({.layout = layout,
                     .coordinator_flags = {"--max-num-seqs=4", "--max-num-batched-tokens=16"}});
    cluster.StartJob(std::string(layout) == "tp=1" ? 1 : 4);
    ASSERT_TRUE(cluster.WaitForServing(1));
    for (const json& golden : Cases()) {
      const json& ids = golden.at("prompt");
      SCOPED_TRACE(ids.size());
      const auto last = golden.at("last").get<std::vector<float>>();
      const auto mean = golden.at("mean").get<std::vector<float>>();
      for (int again = 0; again < 2; ++again) {
        EXPECT_LT(
            RelativeError(Embed(cluster, RequestOf(ids, v1::Embedding::POOLING_LAST, true)), last),
            kMaxRelativeError);
        EXPECT_LT(
            RelativeError(Embed(cluster, RequestOf(ids, v1::Embedding::POOLING_MEAN, true)), mean),
            kMaxRelativeError);
      }
      std::vector<float> unit = mean;
      for (float& value : unit) value = static_cast<float>(value / Norm(mean));
      EXPECT_LT(
          RelativeError(Embed(cluster, RequestOf(ids, v1::Embedding::POOLING_UNSPECIFIED, false)),
                        unit),
          kMaxRelativeError);
    }
  }
}

TEST(EmbeddingsTest, WhatSaysHowTextIsDrawnIsRefused) {
  Cluster cluster({.layout = "tp=1"});
  cluster.StartJob(1);
  ASSERT_TRUE(cluster.WaitForServing(1));
  v1::GenerateRequest request = RequestOf({1, 2}, v1::Embedding::POOLING_MEAN, false);
  request.set_max_tokens(5);
  const Answer answer = cluster.Generate(request);
  EXPECT_EQ(answer.status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(answer.status.error_message(),
            "max_tokens: says how text is drawn, and an embedding is asked for");
}

}  // namespace
}  // namespace skein::testing
