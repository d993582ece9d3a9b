#include "parallel/comm/communicator_suite.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/await_sleep.h"
#include "base/test_util.h"
#include "gtest/gtest.h"

namespace skein::comm {
namespace {

using absl::StatusCode;
using testing::AllOf;
using testing::HasSubstr;

// A value of any magnitude, so that sums in another order differ.
float Value(int rank, int64_t index) {
  uint32_t bits = 2654435761u * static_cast<uint32_t>(index * 64 + rank + 1);
  bits ^= bits >> 15;
  bits *= 2246822519u;
  bits ^= bits >> 13;
  const float mantissa = static_cast<float>(bits & 0xffffff) / 0x1000000 - 0.5f;
  return std::ldexp(mantissa, static_cast<int>(bits >> 27));
}

// The tree over ranks [begin, end), written as its definition reads.
float TreeValue(int begin, int end, int64_t index) {
  if (end - begin == 1) return Value(begin, index);
  int split = 1;
  while (split * 2 < end - begin) split *= 2;
  return TreeValue(begin, begin + split, index) + TreeValue(begin + split, end, index);
}

std::vector<float> Input(int rank, int64_t count) {
  std::vector<float> values(count);
  for (int64_t i = 0; i < count; ++i) values[i] = Value(rank, i);
  return values;
}

// Bits, not values; the first difference is enough.
void ExpectTree(absl::Span<const float> actual, int64_t first, int ranks) {
  for (size_t i = 0; i < actual.size(); ++i) {
    const float expected = TreeValue(0, ranks, first + static_cast<int64_t>(i));
    ASSERT_EQ(std::bit_cast<uint32_t>(actual[i]), std::bit_cast<uint32_t>(expected))
        << "element " << first + static_cast<int64_t>(i) << ": " << actual[i] << " for "
        << expected;
  }
}

std::vector<std::byte> Bytes(int seed, int64_t count) {
  std::vector<std::byte> bytes(count);
  for (int64_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>(i * 131 + i / 251 + seed);
  return bytes;
}

std::string Where(const Communicator& comm) {
  return absl::StrCat("rank ", comm.rank(), " of ", comm.size());
}

bool AppearsSoon(const std::string& path) {
  const absl::Time deadline = absl::Now() + absl::Seconds(20);
  while (!std::filesystem::exists(path)) {
    if (absl::Now() > deadline) return false;
    absl::SleepFor(absl::Milliseconds(1));
  }
  return true;
}

// 0, 1, odd, sizes around the blocks and thresholds of the implementations, and megabytes.
const int64_t kSizes[] = {0, 1, 2, 3, 257, 4099, 8191, 8192, 8193, 150'001};

class CommunicatorSuite : public testing::TestWithParam<int64_t> {};
INSTANTIATE_TEST_SUITE_P(Sizes, CommunicatorSuite, testing::ValuesIn(kSizes),
                         testing::PrintToStringParamName());

// Cases that say nothing where a rank is alone: gtest_mpi_main leaves suites of such a name out
// there.
class CommunicatorPeersSuite : public CommunicatorSuite {};
INSTANTIATE_TEST_SUITE_P(Sizes, CommunicatorPeersSuite, testing::ValuesIn(kSizes),
                         testing::PrintToStringParamName());

TEST_P(CommunicatorSuite, AllReduceSumsAsATree) {
  ForEachGroup([](Communicator& comm) {
    SCOPED_TRACE(Where(comm));
    std::vector<float> data = Input(comm.rank(), GetParam());
    SKEIN_ASSERT_OK(comm.AllReduce(HostView(absl::MakeSpan(data)), kHostStream));
    ExpectTree(data, 0, comm.size());
    EXPECT_EQ(comm.calls(), 1);
    EXPECT_TRUE(comm.SumsAsTree(kHostStream));
  });
}

TEST(CommunicatorTest, SumsOfAnUnknownTypeAreRefused) {
  ForEachGroup([](Communicator& comm) {
    SCOPED_TRACE(Where(comm));
    uint16_t halves[2] = {};
    EXPECT_THAT(comm.AllReduce({halves, DType::kBF16, 1, 2}, kHostStream),
                StatusIs(StatusCode::kUnimplemented, HasSubstr("adds F32, not BF16: convert")));
  });
}

TEST_P(CommunicatorSuite, AllGatherKeepsRankOrder) {
  ForEachGroup([](Communicator& comm) {
    SCOPED_TRACE(Where(comm));
    const std::vector<std::byte> in = Bytes(comm.rank(), GetParam());
    std::vector<std::byte> out(in.size() * comm.size());
    SKEIN_ASSERT_OK(comm.AllGather(HostView(in), HostView(absl::MakeSpan(out)), kHostStream));
    std::vector<std::byte> expected;
    for (int rank = 0; rank < comm.size(); ++rank) {
      const std::vector<std::byte> theirs = Bytes(rank, GetParam());
      expected.insert(expected.end(), theirs.begin(), theirs.end());
    }
    EXPECT_TRUE(out == expected);
  });
}

TEST_P(CommunicatorSuite, BroadcastReachesAllFromEveryRoot) {
  ForEachGroup([](Communicator& comm) {
    SCOPED_TRACE(Where(comm));
    for (int root = 0; root < comm.size(); ++root) {
      std::vector<std::byte> data = Bytes(comm.rank(), GetParam());
      SKEIN_ASSERT_OK(comm.Broadcast(HostView(absl::MakeSpan(data)), root, kHostStream));
      EXPECT_TRUE(data == Bytes(root, GetParam())) << "root " << root;
    }
    EXPECT_EQ(comm.calls(), comm.size());
  });
}

TEST_P(CommunicatorPeersSuite, MessagesGoRoundARing) {
  ForEachGroup([](Communicator& comm) {
    SCOPED_TRACE(Where(comm));
    if (comm.size() == 1) return;
    const int next = (comm.rank() + 1) % comm.size();
    const int previous = (comm.rank() + comm.size() - 1) % comm.size();
    // Everyone sends before it receives: a send does not wait for its receiver.
    for (int i = 0; i < 3; ++i) {
      std::vector<std::byte> sent = Bytes(comm.rank() * 10 + i, GetParam());
      SKEIN_ASSERT_OK(comm.Send(HostView(sent), next, kHostStream));
      std::fill(sent.begin(), sent.end(), std::byte{0xee});  // it may be reused
    }
    for (int i = 0; i < 3; ++i) {
      std::vector<std::byte> received(GetParam());
      SKEIN_ASSERT_OK(comm.Receive(HostView(absl::MakeSpan(received)), previous, kHostStream));
      EXPECT_TRUE(received == Bytes(previous * 10 + i, GetParam())) << "message " << i;
    }
    EXPECT_EQ(comm.calls(), 0);
  });
}

TEST(CommunicatorTest, CallsOfAllKindsFollowEachOther) {
  ForEachGroup([](Communicator& comm) {
    SCOPED_TRACE(Where(comm));
    for (int round = 0; round < 20; ++round) {
      const int64_t count = round * 997;
      std::vector<float> data = Input(comm.rank(), count);
      SKEIN_ASSERT_OK(comm.AllReduce(HostView(absl::MakeSpan(data)), kHostStream));
      ExpectTree(data, 0, comm.size());
      SKEIN_ASSERT_OK(comm.Barrier(kHostStream));
      if (comm.size() > 1 && comm.rank() < 2) {
        std::vector<std::byte> message = Bytes(round, round * 1000);
        if (comm.rank() == 0) {
          SKEIN_ASSERT_OK(comm.Send(HostView(message), 1, kHostStream));
        }
        if (comm.rank() == 1) {
          std::vector<std::byte> received(message.size());
          SKEIN_ASSERT_OK(comm.Receive(HostView(absl::MakeSpan(received)), 0, kHostStream));
          EXPECT_TRUE(received == message);
        }
      }
      std::vector<std::byte> data_bytes = Bytes(comm.rank(), round);
      SKEIN_ASSERT_OK(
          comm.Broadcast(HostView(absl::MakeSpan(data_bytes)), round % comm.size(), kHostStream));
    }
    EXPECT_EQ(comm.calls(), 60);
  });
}

TEST(CommunicatorPeersTest, BarrierWaitsForTheLast) {
  ForEachGroup([](Communicator& comm) {
    SCOPED_TRACE(Where(comm));
    SKEIN_ASSERT_OK(comm.Barrier(kHostStream));
    // Every rank in turn is late; the others must not get through before it came.
    for (int late = 0; late < comm.size(); ++late) {
      absl::Time entered = absl::Now();
      if (comm.rank() == late) {
        absl::SleepFor(absl::Milliseconds(20));
        entered = absl::Now();
      }
      SKEIN_ASSERT_OK(comm.Barrier(kHostStream));
      const double left = absl::ToDoubleSeconds(absl::Now() - absl::UnixEpoch());
      double last_entered = absl::ToDoubleSeconds(entered - absl::UnixEpoch());
      absl::Span<std::byte> bytes(reinterpret_cast<std::byte*>(&last_entered), sizeof(double));
      SKEIN_ASSERT_OK(comm.Broadcast(HostView(bytes), late, kHostStream));
      EXPECT_GE(left, last_entered);
    }
  });
}

// ---- Failures ----

TEST(CommunicatorPeersTest, ARankThatNeverEntersIsNamedAndPoisons) {
  ForEachGroup([](Communicator& comm) {
    SCOPED_TRACE(Where(comm));
    if (comm.size() == 1) return;
    const int absent = comm.size() - 1;
    std::vector<float> data(10);
    SKEIN_ASSERT_OK(comm.AllReduce(HostView(absl::MakeSpan(data)), kHostStream));
    comm.set_timeout(absl::Milliseconds(200));
    if (comm.rank() == absent) return;
    const absl::Time start = absl::Now();
    const absl::Status status = comm.AllReduce(HostView(absl::MakeSpan(data)), kHostStream);
    EXPECT_LT(absl::Now() - start, absl::Seconds(5));
    EXPECT_THAT(status, StatusIs(StatusCode::kDeadlineExceeded,
                                 absl::StrCat("rank ", absent, " never entered all-reduce 2 of '",
                                              std::string(comm.name()), "' within 200ms")));
    EXPECT_EQ(comm.Barrier(kHostStream), status) << "a failure is for ever";
    if (comm.size() > 2) {
      EXPECT_EQ(comm.Receive({}, absent, kHostStream), status);
    }
  });
}

TEST(CommunicatorPeersTest, AReceiverNamesTheSilentSender) {
  ForEachGroup([](Communicator& comm) {
    SCOPED_TRACE(Where(comm));
    if (comm.size() == 1 || comm.rank() != 0) return;
    comm.set_timeout(absl::Milliseconds(100));
    std::byte byte;
    EXPECT_THAT(comm.Receive(HostView(absl::MakeSpan(&byte, 1)), 1, kHostStream),
                StatusIs(StatusCode::kDeadlineExceeded,
                         AllOf(HasSubstr("rank 1 never entered send 1 to rank 0 of '"),
                               HasSubstr("within 100ms"))));
  });
}

TEST(CommunicatorPeersTest, ASenderDoesNotRunAheadForEver) {
  ForEachGroup([](Communicator& comm) {
    SCOPED_TRACE(Where(comm));
    if (comm.size() == 1) return;
    std::vector<std::byte> message(10 << 20);
    // Says that the group has failed, which no call of it can.
    const std::string gave_up = absl::StrCat(testing::TempDir(), "/gave-up-of-", comm.size());
    if (comm.rank() == 0) {
      std::filesystem::remove(gave_up);
      SKEIN_EXPECT_OK(comm.Send(HostView(message), 1, kHostStream));
    }
    SKEIN_ASSERT_OK(comm.Barrier(kHostStream));
    if (comm.rank() == 1) {
      // Takes the first message too late, so that none is left on its way.
      EXPECT_TRUE(AppearsSoon(gave_up));
      comm.Receive(HostView(absl::MakeSpan(message)), 0, kHostStream).IgnoreError();
    }
    if (comm.rank() != 0) return;
    comm.set_timeout(absl::Milliseconds(50));
    EXPECT_THAT(comm.Send(HostView(message), 1, kHostStream),
                StatusIs(StatusCode::kDeadlineExceeded,
                         HasSubstr("rank 1 never entered receive 1 from rank 0 of '")));
    std::ofstream(gave_up) << "yes";
  });
}

struct Disagreement {
  const char* what;
  std::function<absl::Status(Communicator&)> most;
  std::function<absl::Status(Communicator&)> last;  // of the last rank
};

TEST(CommunicatorPeersTest, RanksThatDisagreeGetAnErrorAndNoData) {
  static const auto all_reduce = [](int64_t count) {
    return [count](Communicator& comm) {
      std::vector<float> data(count, 1);
      return comm.AllReduce(HostView(absl::MakeSpan(data)), kHostStream);
    };
  };
  static const auto barrier = [](Communicator& comm) { return comm.Barrier(kHostStream); };
  static const auto broadcast = [](int root) {
    return [root](Communicator& comm) {
      std::vector<std::byte> data(8);
      return comm.Broadcast(HostView(absl::MakeSpan(data)), root % comm.size(), kHostStream);
    };
  };
  const Disagreement kDisagreements[] = {
      {"operation", all_reduce(0), barrier},
      {"small sizes", all_reduce(10), all_reduce(11)},
      {"small and large", all_reduce(10), all_reduce(200'000)},
      {"large and small", all_reduce(200'000), all_reduce(10)},
      {"large sizes", all_reduce(200'000), all_reduce(200'001)},
      {"root", broadcast(0), broadcast(1)},
  };
  for (const Disagreement& disagreement : kDisagreements) {
    ForEachGroup([&](Communicator& comm) {
      SCOPED_TRACE(absl::StrCat(Where(comm), ", ", disagreement.what));
      if (comm.size() == 1) return;
      comm.set_timeout(absl::Seconds(2));  // for those whose peer has failed already
      const bool last = comm.rank() == comm.size() - 1;
      const absl::Status status = (last ? disagreement.last : disagreement.most)(comm);
      EXPECT_FALSE(status.ok());
      if (last) {
        EXPECT_THAT(status,
                    StatusIs(StatusCode::kFailedPrecondition, HasSubstr("disagree: rank ")));
      }
    });
  }
}

TEST(CommunicatorPeersTest, AMessageOfAnotherSizeIsAnError) {
  ForEachGroup([](Communicator& comm) {
    SCOPED_TRACE(Where(comm));
    if (comm.size() == 1) return;
    std::vector<std::byte> data(1000);
    if (comm.rank() == 0) {
      SKEIN_EXPECT_OK(comm.Send(HostView(data), 1, kHostStream));
    }
    if (comm.rank() == 1) {
      data.resize(999);
      EXPECT_THAT(comm.Receive(HostView(absl::MakeSpan(data)), 0, kHostStream),
                  StatusIs(StatusCode::kFailedPrecondition,
                           AllOf(HasSubstr("rank 1 entered receive 1 from rank 0 of 999 bytes"),
                                 HasSubstr("rank 0 entered send 1 to rank 1 of 1000 bytes"))));
    }
  });
}

TEST(CommunicatorTest, WrongArgumentsAreRefused) {
  const std::function<absl::Status(Communicator&)> kCalls[] = {
      [](Communicator& comm) {
        std::byte bytes[2] = {};
        return comm.AllGather(HostView(absl::MakeSpan(bytes, 2)),
                              HostView(absl::MakeSpan(bytes, 1)), kHostStream);
      },
      [](Communicator& comm) { return comm.Broadcast({}, comm.size(), kHostStream); },
      [](Communicator& comm) { return comm.Broadcast({}, -1, kHostStream); },
      [](Communicator& comm) { return comm.Send({}, comm.rank(), kHostStream); },
      [](Communicator& comm) { return comm.Receive({}, comm.size(), kHostStream); },
  };
  for (const auto& call : kCalls) {
    ForEachGroup([&](Communicator& comm) {
      SCOPED_TRACE(Where(comm));
      EXPECT_THAT(call(comm), StatusIs(StatusCode::kInvalidArgument, HasSubstr(" '")));
    });
  }
}

TEST(CommunicatorPeersTest, AbortEndsACallInFlightAndAllLaterOnes) {
  ForEachGroup([](Communicator& comm) {
    SCOPED_TRACE(Where(comm));
    if (comm.size() == 1 || comm.rank() != 0) return;
    const absl::Status why = absl::CancelledError("the job ends");
    std::atomic<bool> enters = false;
    std::thread aborter([&, caller = gettid()] {
      enters.wait(false);
      EXPECT_TRUE(AwaitSleep(caller));
      comm.Abort(why);
    });
    enters = true;
    enters.notify_one();
    const absl::Time start = absl::Now();
    EXPECT_EQ(comm.Barrier(kHostStream), why);
    EXPECT_LT(absl::Now() - start, absl::Seconds(5));
    aborter.join();
    comm.Abort(absl::InternalError("too late"));
    std::byte byte;
    EXPECT_EQ(comm.Receive(HostView(absl::MakeSpan(&byte, 1)), 1, kHostStream), why);
    EXPECT_EQ(comm.Send({}, 1, kHostStream), why);
  });
}

}  // namespace
}  // namespace skein::comm
