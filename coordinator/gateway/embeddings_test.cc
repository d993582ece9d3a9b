// POST /v1/embeddings.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/escaping.h"
#include "coordinator/gateway/gateway_fixture.h"

namespace skein::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Of the fake model.
int64_t Hidden() { return MakeFakeModel({}, 64).config.hidden_size; }

// {prompt tokens, 1 where the last row is meant, 0 ...}.
std::vector<serving::AnswerOutput> Vectors(const serving::Request& request) {
  serving::AnswerOutput output = TextOutput(request.id, "x", serving::Finish::kMaxTokens);
  output.embedding.resize(static_cast<size_t>(Hidden()));
  output.embedding[0] = static_cast<float>(request.prompt.size());
  output.embedding[1] = request.pooling == serving::Pooling::kLast ? 1.0f : 0.0f;
  return {output};
}

class EmbeddingsTest : public GatewayTest {
 protected:
  void SetUp() override { StartJob(Vectors); }
  // The first two numbers; all others are 0.
  std::vector<float> Head(const json& item) {
    const auto values = item.at("embedding").get<std::vector<float>>();
    EXPECT_EQ(std::ssize(values), Hidden());
    EXPECT_TRUE(std::all_of(values.begin() + 2, values.end(), [](float v) { return v == 0; }));
    return {values[0], values[1]};
  }
};

TEST_F(EmbeddingsTest, OneOrManyInTheirOrder) {
  const json one = PostJson("/v1/embeddings", {{"input", "abcd"}, {"normalize", false}});
  EXPECT_EQ(one["object"], "list");
  EXPECT_EQ(one["model"], "fake");
  ASSERT_EQ(one["data"].size(), 1u);
  EXPECT_EQ(one["data"][0]["object"], "embedding");
  EXPECT_EQ(one["data"][0]["index"], 0);
  EXPECT_THAT(Head(one["data"][0]), ElementsAre(4, 0));
  EXPECT_EQ(one["usage"], json({{"prompt_tokens", 4}, {"total_tokens", 4}}));

  const json many =
      PostJson("/v1/embeddings",
               {{"input", {"a", {65, 66, 67}, "ef"}}, {"pooling", "last"}, {"normalize", false}});
  ASSERT_EQ(many["data"].size(), 3u);
  EXPECT_THAT(Head(many["data"][0]), ElementsAre(1, 1));
  EXPECT_THAT(Head(many["data"][1]), ElementsAre(3, 1));
  EXPECT_THAT(Head(many["data"][2]), ElementsAre(2, 1));
  EXPECT_EQ(many["data"][2]["index"], 2);
  EXPECT_EQ(many["usage"]["total_tokens"], 6);
}

TEST_F(EmbeddingsTest, AreOfLengthOneUnlessTheyAreWantedRaw) {
  const json unit = PostJson("/v1/embeddings", {{"input", "abcd"}, {"pooling", "last"}});
  const std::vector<float> head = Head(unit["data"][0]);
  EXPECT_FLOAT_EQ(head[0], 4 / std::sqrt(17.0f));
  EXPECT_FLOAT_EQ(head[1], 1 / std::sqrt(17.0f));
}

TEST_F(EmbeddingsTest, Base64IsLittleEndianFloats) {
  const json got = PostJson("/v1/embeddings", {{"input", "abcd"},
                                               {"pooling", "last"},
                                               {"normalize", false},
                                               {"encoding_format", "base64"}});
  std::string bytes;
  ASSERT_TRUE(absl::Base64Unescape(got["data"][0]["embedding"].get<std::string>(), &bytes));
  EXPECT_EQ(std::ssize(bytes), 4 * Hidden());
  EXPECT_EQ(bytes.substr(0, 8), std::string("\0\0\x80\x40\0\0\x80\x3f", 8));
}

// The queue has 8 places, and the job's 8 sequences.
TEST_F(EmbeddingsTest, MoreThanTheQueueHoldsGoOneAfterTheOther) {
  std::vector<std::string> inputs;
  for (int i = 0; i < 300; ++i) inputs.push_back(std::string(1 + i % 40, 'a'));
  const json got = PostJson("/v1/embeddings", {{"input", inputs}, {"normalize", false}});
  ASSERT_EQ(got["data"].size(), inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    EXPECT_EQ(got["data"][i]["index"], i);
    EXPECT_EQ(Head(got["data"][i])[0], static_cast<float>(inputs[i].size()));
  }
}

// Others take the places in the queue as soon as there are some.
TEST_F(EmbeddingsTest, OneThatHasBegunIsNotRefusedInItsMiddle) {
  Daemon::Options options = Options();
  options.model.limits.constraints.max_num_seqs = 1;
  options.model.limits.max_queue = 1;
  TestCoordinator crowded(options, Model());
  std::atomic<int> computed = 0;  // of what is asked for below
  const FakeJob job(
      {.coordinator = crowded.address(), .script = [&](const serving::Request& request) {
         if (request.prompt.size() == 4) ++computed;
         return Vectors(request);
       }});
  ASSERT_TRUE(crowded.WaitUntilServing());
  std::atomic<int> refused = 0;
  std::vector<std::jthread> others;
  for (int i = 0; i < 4; ++i) {
    others.emplace_back([&](const std::stop_token& stop) {
      HttpTestClient client(crowded.http_address());
      while (!stop.stop_requested()) {
        client.Post("/v1/embeddings", R"({"input": "other"})");
        refused += client.Read().status == 429 ? 1 : 0;
      }
    });
  }
  HttpTestClient client(crowded.http_address());
  for (int whole = 0; whole < 10;) {
    computed = 0;
    client.Post("/v1/embeddings", json({{"input", std::vector<std::string>(50, "mine")}}).dump());
    const Response response = client.Read();
    // Its first input may find a full queue.
    ASSERT_EQ(response.status, computed == 0 ? 429 : 200) << response.body;
    if (response.status == 200) ++whole;
  }
  EXPECT_GT(refused, 0);
}

TEST_F(EmbeddingsTest, WhatIsWrongIsNamed) {
  const auto fails = [&](const json& body, const std::string& param, const std::string& message) {
    const json error = PostJson("/v1/embeddings", body, 400)["error"];
    EXPECT_EQ(error["param"], param);
    EXPECT_THAT(error["message"].get<std::string>(), HasSubstr(message));
  };
  fails(json::object(), "input", "is missing");
  fails({{"input", json::array()}}, "input", "is expected");
  fails({{"input", ""}}, "input", "empty");
  fails({{"input", {"a", ""}}}, "input", "empty");
  fails({{"input", std::string(65, 'a')}}, "input", "65 tokens");
  fails({{"input", std::vector<std::string>(2049, "a")}}, "input", "at most 2048");
  fails({{"input", "a"}, {"pooling", "max"}}, "pooling", "\"mean\" or \"last\"");
  fails({{"input", "a"}, {"encoding_format", "hex"}}, "encoding_format", "\"float\" or");
  fails({{"input", "a"}, {"dimensions", 4}}, "dimensions", "not supported");
  fails({{"input", "a"}, {"normalize", 1}}, "normalize", "");
}

}  // namespace
}  // namespace skein::coordinator
