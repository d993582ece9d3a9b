// Which sums go over memory, and that all ranks do alike.
#include "parallel/comm/p2p/peer_transport.h"

#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/test_util.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "parallel/comm/fake_device.h"
#include "parallel/comm/inprocess/inprocess.h"

namespace skein::comm {
namespace {

using ::testing::ElementsAre;

// Takes up to 16 bytes.
class FakeSums final : public PeerSums {
 public:
  explicit FakeSums(int number) : number_(number) {}
  std::string handle() const override { return absl::StrCat("memory ", number_); }
  absl::Status Open(absl::Span<const std::string> handles) override {
    opened.assign(handles.begin(), handles.end());
    return open;
  }
  void Close() override {}
  bool Takes(const View& data) const override { return data.bytes() <= 16; }
  absl::Status Sum(View, Stream) override {
    ++sums;
    return absl::OkStatus();
  }
  void Abort() override { ++aborts; }

  std::vector<std::string> opened;
  absl::Status open;
  int sums = 0;
  int aborts = 0;

 private:
  const int number_;
};

class PeerTransportTest : public ::testing::Test {
 protected:
  // Both ranks at once. Those whose `why` is an error have no sums.
  void Make(const std::vector<std::string>& hosts, const std::vector<absl::Status>& why,
            const absl::Status& open = absl::OkStatus()) {
    auto groups = MakeInProcessGroup(2, "pair");
    std::vector<std::thread> threads;
    for (int i = 0; i < 2; ++i) {
      auto sums = std::make_unique<FakeSums>(i);
      auto rest = std::make_unique<FakeTransport>();
      sums_[i] = sums.get();
      rest_[i] = rest.get();
      if (i == 1) sums->open = open;
      threads.emplace_back([&, i, sums = std::move(sums), rest = std::move(rest)]() mutable {
        absl::StatusOr<std::unique_ptr<PeerSums>> mine = std::move(sums);
        if (!why[i].ok()) mine = why[i];
        made_[i] = MakePeerTransport(*groups[i], hosts[i], std::move(mine), std::move(rest));
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const auto& made : made_) SKEIN_ASSERT_OK(made);
  }
  // Both ranks leave every sum to the rest.
  void ExpectRestAlone(const std::string& why) {
    for (int i = 0; i < 2; ++i) {
      EXPECT_EQ(made_[i]->why_not, why);
      EXPECT_EQ(made_[i]->transport.get(), rest_[i]);
    }
  }

  FakeSums* sums_[2] = {};
  FakeTransport* rest_[2] = {};
  absl::StatusOr<PeerTransport> made_[2];
  const Patience patience_;
};

TEST_F(PeerTransportTest, SmallSumsGoOverMemoryAndAllElseDoesNot) {
  Make({"a", "a"}, {{}, {}});
  EXPECT_EQ(made_[1]->why_not, "");
  EXPECT_THAT(sums_[1]->opened, ElementsAre("memory 0", "memory 1"));
  DeviceTransport& transport = *made_[1]->transport;
  const Call sum = {.operation = Operation::kAllReduce, .number = 1};
  float data[5] = {};
  SKEIN_EXPECT_OK(transport.AllReduce(sum, {data, DType::kF32, 1, 4}, {}, patience_));
  EXPECT_EQ(sums_[1]->sums, 1);
  EXPECT_TRUE(rest_[1]->given.empty());
  SKEIN_EXPECT_OK(transport.AllReduce(sum, {data, DType::kF32, 1, 5}, {}, patience_));
  const Call send = {.operation = Operation::kSend, .peer = 0, .number = 1};
  SKEIN_EXPECT_OK(transport.Send(send, ConstView{data, DType::kF32, 1, 1}, {}, patience_));
  const Call receive = {.operation = Operation::kReceive, .peer = 0, .number = 1};
  SKEIN_EXPECT_OK(transport.Receive(receive, {data, DType::kF32, 1, 1}, {}, patience_));
  EXPECT_EQ(sums_[1]->sums, 1);
  EXPECT_THAT(rest_[1]->given, ElementsAre(sum, send, receive));
  EXPECT_EQ(transport.Others(send), "rank 7 on c");
  rest_[1]->state = absl::UnavailableError("lost");
  EXPECT_EQ(transport.Check(), rest_[1]->state);
  transport.Abort();
  EXPECT_EQ(sums_[1]->aborts, 1);
  EXPECT_EQ(rest_[1]->aborts, 1);
}

TEST_F(PeerTransportTest, WhereOneCannotNoneDoes) {
  Make({"a", "b"}, {{}, {}});
  ExpectRestAlone("the group's ranks are on several hosts");
  Make({"a", "a"}, {{}, absl::ResourceExhaustedError("no memory")});
  ExpectRestAlone("rank 1 of the group: no memory");
  Make({"a", "a"}, {{}, {}}, absl::InternalError("no peer access"));
  ExpectRestAlone("rank 1 of the group: no peer access");
}

}  // namespace
}  // namespace skein::comm
