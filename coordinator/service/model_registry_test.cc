#include "coordinator/service/model_registry.h"

#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "base/test_util.h"
#include "coordinator/service/dispatcher_fixture.h"
#include "coordinator/service/inference_service.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace skein::coordinator {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class ModelRegistryTest : public ::testing::Test {
 protected:
  HostedModel Make(const std::string& name, const std::vector<std::string>& aliases = {}) {
    ServedModel model = MakeFakeModel();
    model.name = name;
    model.aliases = aliases;
    return {
        .model = std::make_shared<const ServedModel>(std::move(model)),
        .dispatcher = std::make_shared<Dispatcher>(Dispatcher::Options{.max_queue = 1}, &clock_)};
  }
  // Its leader.
  std::shared_ptr<FakeLeader> AddReplica(const std::string& model, uint64_t id) {
    auto leader = std::make_shared<FakeLeader>();
    models_.Find(model)->dispatcher->OnReplicaUp(
        {ReplicaId(id), "a replica", 1, leader, /*page_size=*/4, /*pages=*/100, 100});
    return leader;
  }
  std::string FoundBy(const std::string& name) const {
    const absl::StatusOr<HostedModel> found = models_.Find(name);
    return found.ok() ? found->model->name : std::string(found.status().message());
  }
  absl::StatusOr<std::shared_ptr<Generation>> Ask(const std::string& model) {
    return service_.Generate({.model = model, .input = std::string("abc")},
                             [](Generation::Ready) {});
  }

  SimulatedClock clock_;
  ModelRegistry models_;
  InferenceService service_{&models_, &clock_};
};

TEST_F(ModelRegistryTest, TheOnlyModelNeedsNoName) {
  EXPECT_EQ(models_.Find("").status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(FoundBy(""), HasSubstr("no model is"));
  SKEIN_ASSERT_OK(models_.Add(Make("bard", {"poet"})));
  for (const char* const name : {"", "bard", "poet"}) EXPECT_EQ(FoundBy(name), "bard");
  SKEIN_ASSERT_OK(models_.Add(Make("chat")));
  EXPECT_EQ(FoundBy("chat"), "chat");
  EXPECT_EQ(FoundBy("poet"), "bard");
  EXPECT_EQ(models_.Find("").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(FoundBy(""), "model: is missing, and there are several: 'bard', 'chat'");
  EXPECT_EQ(models_.Find("gpt").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(FoundBy("gpt"), "model: 'gpt' is not served here; 'bard', 'chat' are");
  models_.Remove("bard");
  EXPECT_EQ(FoundBy("gpt"), "model: 'gpt' is not served here; 'chat' is");
  EXPECT_EQ(FoundBy(""), "chat");
}

TEST_F(ModelRegistryTest, NamesAreTakenOnce) {
  SKEIN_ASSERT_OK(models_.Add(Make("bard", {"poet"})));
  EXPECT_EQ(models_.Add(Make("poet")).code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(models_.Add(Make("chat", {"bard"})).code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(models_.Reserve({"x", "x"}).code(), absl::StatusCode::kAlreadyExists);
  SKEIN_ASSERT_OK(models_.Reserve({"chat", "talk"}));
  EXPECT_THAT(models_.Loading(), ElementsAre("chat"));
  EXPECT_EQ(models_.Reserve({"talk"}).code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(models_.Find("talk").status().code(), absl::StatusCode::kUnavailable);
  models_.Release({"chat", "talk"});
  EXPECT_THAT(models_.Loading(), IsEmpty());
  SKEIN_ASSERT_OK(models_.Reserve({"chat", "talk"}));
  SKEIN_ASSERT_OK(models_.Add(Make("chat", {"talk"})));
  EXPECT_THAT(models_.Loading(), IsEmpty());
  EXPECT_EQ(FoundBy("talk"), "chat");
}

// A full queue of one model, or one without a replica, is not the others' business.
TEST_F(ModelRegistryTest, EachModelHasItsReplicasAndItsQueue) {
  SKEIN_ASSERT_OK(models_.Add(Make("bard")));
  SKEIN_ASSERT_OK(models_.Add(Make("chat")));
  EXPECT_FALSE(models_.serving());
  const auto bard = AddReplica("bard", 1);
  EXPECT_TRUE(models_.serving());
  EXPECT_STREQ(models_.Find("bard")->state(), "serving");
  EXPECT_STREQ(models_.Find("chat")->state(), "waiting for workers");
  EXPECT_EQ(Ask("chat").status().code(), absl::StatusCode::kUnavailable);
  for (int i = 0; i < 3; ++i) SKEIN_EXPECT_OK(Ask("bard").status());  // two there, and one waits
  EXPECT_EQ(Ask("bard").status().code(), absl::StatusCode::kResourceExhausted);
  const auto chat = AddReplica("chat", 2);
  SKEIN_EXPECT_OK(Ask("chat").status());
  EXPECT_EQ(bard->requests.size(), 2u);
  EXPECT_EQ(chat->requests.size(), 1u);
  const Dispatcher::Counts counts = models_.counts();
  EXPECT_EQ(counts.running, 3);
  EXPECT_EQ(counts.queued, 1);
}

TEST_F(ModelRegistryTest, RequestsAreCancelledWhereTheyAre) {
  SKEIN_ASSERT_OK(models_.Add(Make("bard")));
  SKEIN_ASSERT_OK(models_.Add(Make("chat")));
  const auto bard = AddReplica("bard", 1);
  const auto chat = AddReplica("chat", 2);
  const auto of_bard = Ask("bard");
  const auto of_chat = Ask("chat");
  service_.Cancel({*of_bard, *of_chat});
  EXPECT_THAT(bard->cancelled, ElementsAre((*of_bard)->id().value()));
  EXPECT_THAT(chat->cancelled, ElementsAre((*of_chat)->id().value()));
}

TEST_F(ModelRegistryTest, AGenerationKeepsItsModel) {
  HostedModel hosted = Make("bard");
  const std::weak_ptr<const ServedModel> model = hosted.model;
  SKEIN_ASSERT_OK(models_.Add(std::move(hosted)));
  AddReplica("bard", 1);
  auto generation = Ask("bard");
  models_.Remove("bard");
  ASSERT_FALSE(model.expired());
  EXPECT_EQ((*generation)->model().name, "bard");
  service_.Cancel({*generation});  // of a model that is gone
  generation = absl::UnknownError("");
  EXPECT_TRUE(model.expired());
}

}  // namespace
}  // namespace skein::coordinator
