// The guard between clients' sockets and gRPC's, whose part a test plays.
#include "coordinator/http2_guard/http2_guard.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "coordinator/http2_guard/hand_made_frames.h"
#include "coordinator/http2_guard/http2_guard_fixture.h"
#include "coordinator/http2_guard/peer_name.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace skein::coordinator {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// Of a frame that is never whole, and passes as it comes.
std::string EndlessHeader() {
  std::string header;
  AppendFrameHeader({.length = 0xffffff, .kind = FrameKind::kData, .stream = 1}, header);
  return header;
}

TEST_F(Http2GuardTest, MebibytesGoBothWaysAtOnce) {
  Start();
  const auto client = Connect();
  const auto server = Greeted(*client);
  const std::string up = Data(kLarge);
  const std::string down = Data(kLarge + 12345);
  std::thread upward([&] { EXPECT_TRUE(client->Send(up)); });
  std::thread downward([&] { EXPECT_TRUE(server->Send(down)); });
  std::string got;
  std::thread reader([&] { got = server->Read(up.size()); });
  EXPECT_EQ(client->Read(down.size()) == down, true);
  for (std::thread* thread : {&upward, &downward, &reader}) thread->join();
  EXPECT_EQ(got == up, true);
}

TEST_F(Http2GuardTest, TheClientsAddressGoesAlong) {
  Start();
  const auto client = Connect();
  const auto server = Greeted(*client);
  sockaddr_un name = {};
  socklen_t size = sizeof(name);
  ASSERT_EQ(getpeername(server->fd(), reinterpret_cast<sockaddr*>(&name), &size), 0);
  const std::string peer(name.sun_path + 1, size - offsetof(sockaddr_un, sun_path) - 1);
  sockaddr_in own = {};
  size = sizeof(own);
  getsockname(client->fd(), reinterpret_cast<sockaddr*>(&own), &size);
  EXPECT_EQ(AddressIn("unix-abstract:" + peer),
            absl::StrCat("ipv4:127.0.0.1:", ntohs(own.sin_port)));
  EXPECT_EQ(AddressIn("ipv4:10.0.0.7:80"), "ipv4:10.0.0.7:80");
  EXPECT_EQ(AddressIn("unix:/tmp/skein-1/ipv4:x"), "unix:/tmp/skein-1/ipv4:x");
}

TEST_F(Http2GuardTest, WhatOneEndDoesNotReadIsNotReadFromTheOther) {
  Start();
  const auto client = Connect();
  const auto server = Greeted(*client);
  ASSERT_TRUE(client->Send(EndlessHeader()));
  const size_t up = client->SendUntilNothingGoes();
  ASSERT_TRUE(server->Send(EndlessHeader()));
  const size_t down = server->SendUntilNothingGoes();
  EXPECT_LT(up, size_t{32} << 20);
  EXPECT_LT(down, size_t{32} << 20);
  EXPECT_EQ(server->Read(9 + up).size(), 9 + up);
  EXPECT_EQ(client->Read(9 + down).size(), 9 + down);
}

TEST_F(Http2GuardTest, UpdatesOfWindowsWaitForAMoment) {
  Start();
  const auto client = Connect();
  const auto server = Greeted(*client);
  const std::string update = Frame(FrameKind::kWindowUpdate, 0, 0, std::string("\0\0\0\1", 4));
  for (int i = 0; i < 3; ++i) {
    const absl::Time begin = absl::Now();
    ASSERT_TRUE(client->Send(update));
    ASSERT_TRUE(server->Send(update));
    EXPECT_EQ(server->Read(update.size()), update);
    EXPECT_EQ(client->Read(update.size()), update);
    EXPECT_GE(absl::Now() - begin, absl::Milliseconds(19));
  }
}

TEST_F(Http2GuardTest, AClientThatSaysNoMoreStillReads) {
  Start();
  const auto client = Connect();
  const auto server = Greeted(*client);
  ASSERT_TRUE(client->Send(kBegun));
  shutdown(client->fd(), SHUT_WR);
  EXPECT_EQ(server->Read(), kBegun);
  const std::string answer = Data(1 << 20);
  ASSERT_TRUE(server->Send(answer));
  server->Close();
  EXPECT_EQ(client->Read() == answer, true);
}

TEST_F(Http2GuardTest, AClientThatIsGoneIsGoneForGrpc) {
  Start();
  auto client = Connect();
  const auto server = Greeted(*client);
  const linger reset = {.l_onoff = 1, .l_linger = 0};
  setsockopt(client->fd(), SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
  client.reset();
  EXPECT_EQ(server->Read(), "");
}

TEST_F(Http2GuardTest, WhatGrpcSaidLastArrives) {
  Start();
  const auto client = Connect();
  auto server = Greeted(*client);
  const std::string last = Data(3 << 20);
  std::thread sender([&] {
    EXPECT_TRUE(server->Send(last));
    server.reset();
  });
  absl::SleepFor(absl::Milliseconds(100));  // buffers are full by then
  EXPECT_EQ(client->Read() == last, true);
  sender.join();
}

// As clients do that make room for more.
TEST_F(Http2GuardTest, ItArrivesAlsoWhereTheClientStillTalks) {
  Start();
  const auto client = Connect();
  auto server = Greeted(*client);
  const std::string last = Data(1 << 20);
  std::thread sender([&] {
    EXPECT_TRUE(server->Send(last));
    server.reset();
  });
  const std::string update = Frame(FrameKind::kWindowUpdate, 0, 0, std::string("\0\0\x10\0", 4));
  std::string read;
  while (read.size() < last.size()) {
    const std::string part = client->Read(std::min<size_t>(8 << 10, last.size() - read.size()));
    if (part.empty()) break;
    read += part;
    client->Send(update);
    if (read.size() > last.size() / 2) absl::SleepFor(absl::Milliseconds(1));
  }
  EXPECT_EQ(read == last, true) << read.size() << " of " << last.size();
  sender.join();
}

TEST_F(Http2GuardTest, AHeaderBlockThatIsNeverWholeEndsAfterAWhile) {
  Start({.opening_time = absl::Milliseconds(300)});
  const auto client = Connect();
  const auto server = Greeted(*client);
  const auto other = Connect();
  const auto other_server = Greeted(*other);
  ASSERT_TRUE(client->Send(Frame(FrameKind::kHeaders, 0, 1, "x")));
  EXPECT_EQ(server->Read(), "");
  ASSERT_TRUE(other->Send(kBegun));
  EXPECT_EQ(other_server->Read(kBegun.size()), kBegun);
}

TEST_F(Http2GuardTest, ItArrivesAlsoWhereTheClientReadsItLater) {
  Start();
  const auto client = Connect();
  auto server = Greeted(*client);
  ASSERT_TRUE(server->Send(EndlessHeader()));
  const size_t sent = server->SendUntilNothingGoes();
  server.reset();
  absl::SleepFor(absl::Milliseconds(200));
  const absl::Time begin = absl::Now();
  EXPECT_EQ(client->Read().size(), 9 + sent);
  EXPECT_LT(absl::Now() - begin, absl::Seconds(4));  // it ends when all is read, not by a deadline
}

TEST_F(Http2GuardTest, WhoBreaksTheRulesIsCutOffAndTold) {
  Start();
  const auto client = Connect();
  const auto server = Greeted(*client);
  ASSERT_TRUE(client->Send(kBegun));
  EXPECT_EQ(server->Read(kBegun.size()), kBegun);
  ASSERT_TRUE(client->Send(Frame(FrameKind::kHeaders, 0, 3, std::string(40000, 'x'))));
  EXPECT_EQ(client->Read(17), Frame(FrameKind::kGoaway, 0, 0, std::string("\0\0\0\1\0\0\0\xb", 8)));
  EXPECT_EQ(client->Read(), "");
  EXPECT_EQ(server->Read(), "");  // nothing of it came
  EXPECT_THAT(lines(), AllOf(StartsWith("a client was cut off: it sent a header block that is too "
                                        "long (from 127.0.0.1:"),
                             EndsWith(")\n")));
}

TEST_F(Http2GuardTest, OneThatDoesNotSpeakHttp2IsToldInHttp2) {
  Start();
  const auto client = Connect();
  ASSERT_TRUE(client->Send("GET / HTTP/1.1\r\n"));
  EXPECT_EQ(client->Read(),
            Frame(FrameKind::kSettings, 0, 0) +
                Frame(FrameKind::kGoaway, 0, 0, std::string("\0\0\0\0\0\0\0\1", 8)));
  EXPECT_THAT(lines(), HasSubstr("it does not speak HTTP/2"));
}

TEST_F(Http2GuardTest, WhoSaysNothingIsDroppedAfterAWhile) {
  Start({.opening_time = absl::Milliseconds(200)});
  const auto greeted = Connect();
  const auto server = Greeted(*greeted);
  const auto silent = Connect();
  const auto half = Connect();
  ASSERT_TRUE(half->Send("PRI * HT"));
  const absl::Time begin = absl::Now();
  EXPECT_EQ(silent->Read(), "");
  EXPECT_EQ(half->Read(), "");
  EXPECT_LT(absl::Now() - begin, absl::Seconds(10));
  EXPECT_EQ(lines(), "");
  ASSERT_TRUE(greeted->Send(kBegun));
  EXPECT_EQ(server->Read(kBegun.size()), kBegun);
}

std::string BeginAndReset(uint32_t first, int count) {
  std::string frames;
  for (int i = 0; i < count; ++i, first += 2) {
    frames += Frame(FrameKind::kHeaders, kEndHeaders, first, "x") + Reset(first);
  }
  return frames;
}

TEST_F(Http2GuardTest, ResetsGoOnAtARateAndNobodyWaitsForOthers) {
  Start({.resets = {.burst = 50, .per_second = 200}});
  const auto many = Connect();
  const auto many_server = Greeted(*many);
  const auto few = Connect();
  const auto few_server = Greeted(*few);
  const absl::Time begin = absl::Now();
  const std::string sent = BeginAndReset(1, 350);
  const std::string sent_too = BeginAndReset(1, 5);
  std::atomic<bool> is_over = false;
  std::thread reader([&] {
    EXPECT_EQ(many_server->Read(sent.size()) == sent, true);
    is_over = true;
  });
  ASSERT_TRUE(many->Send(sent));
  ASSERT_TRUE(WaitFor([&] { return !lines().empty(); }));
  ASSERT_TRUE(few->Send(sent_too));
  EXPECT_EQ(few_server->Read(sent_too.size()), sent_too);
  EXPECT_FALSE(is_over);
  reader.join();
  EXPECT_GE(absl::Now() - begin, absl::Seconds(1.4));  // 300 at 200 a second
  EXPECT_THAT(lines(),
              HasSubstr("clients reset or leave streams faster than 200 a second: they wait"));
}

TEST_F(Http2GuardTest, ResetsThatClientsMakeTheServerSendCountToo) {
  Start({.resets = {.burst = 5, .per_second = 10}});
  const auto client = Connect();
  const auto server = Greeted(*client);
  std::string begun;
  std::string resets;
  for (uint32_t stream = 1; stream < 21; stream += 2) {
    begun += Frame(FrameKind::kHeaders, kEndHeaders, stream, "x");
    resets += Reset(stream, 1);
  }
  ASSERT_TRUE(client->Send(begun));
  EXPECT_EQ(server->Read(begun.size()), begun);
  const absl::Time begin = absl::Now();
  ASSERT_TRUE(server->Send(resets));
  EXPECT_EQ(client->Read(resets.size()), resets);
  ASSERT_TRUE(client->Send(kBegun));
  EXPECT_EQ(server->Read(kBegun.size()), kBegun);
  EXPECT_GE(absl::Now() - begin, absl::Seconds(0.4));  // the five that were not paid for at once
}

// What gRPC began for them goes on. Who has one stream alone is not held up.
TEST_F(Http2GuardTest, StreamsOfAClientThatGoesAreOwedByThoseThatHaveMany) {
  Start({.resets = {.burst = 25, .per_second = 25}});
  const auto few = Connect();
  const auto few_server = Greeted(*few);
  const auto leaves = Connect();
  const auto leaves_server = Greeted(*leaves);
  std::string begun;
  for (uint32_t stream = 1; stream < 601; stream += 2) {
    begun += Frame(FrameKind::kHeaders, kEndHeaders, stream, "x");
  }
  ASSERT_TRUE(leaves->Send(begun));
  EXPECT_EQ(leaves_server->Read(begun.size()), begun);
  const absl::Time begin = absl::Now();
  leaves->Close();
  EXPECT_EQ(leaves_server->Read(), "");
  leaves_server->Close();
  absl::SleepFor(absl::Milliseconds(100));  // for the guard to hear of both ends
  const auto fresh = Connect();
  const auto fresh_server = Greeted(*fresh);
  // The first one goes on at once, with what belongs to it; the second one waits.
  const std::string first = kBegun + Frame(FrameKind::kData, 0, 1, "at once");
  ASSERT_TRUE(few->Send(first));
  EXPECT_EQ(few_server->Read(first.size()), first);
  EXPECT_LT(absl::Now() - begin, absl::Seconds(1));
  const std::string more = begun.substr(kBegun.size(), 2 * kBegun.size());
  ASSERT_TRUE(few->Send(more));
  EXPECT_EQ(few_server->Read(more.size()), more);
  EXPECT_GE(absl::Now() - begin, absl::Seconds(0.9));  // a burst of 25 at 25 a second
  EXPECT_LT(absl::Now() - begin, absl::Seconds(3));    // and no more
}

TEST_F(Http2GuardTest, WhenAllHaveTooManyStreamsTheOneWithTheMostIsCutOff) {
  Start({.open_streams = 10});
  const auto few = Connect();
  const auto few_server = Greeted(*few);
  const auto many = Connect();
  const auto many_server = Greeted(*many);
  const auto begin = [](const End& client, uint32_t from, uint32_t count) {
    std::string frames;
    for (uint32_t i = 0; i < count; ++i) {
      frames += Frame(FrameKind::kHeaders, kEndHeaders, from + 2 * i, "x");
    }
    EXPECT_TRUE(client.Send(frames));
    return frames.size();
  };
  few_server->Read(begin(*few, 1, 3));
  many_server->Read(begin(*many, 1, 7));
  EXPECT_EQ(lines(), "");
  begin(*few, 7, 1);
  EXPECT_THAT(many->Read(), StartsWith(Frame(FrameKind::kGoaway, 0, 0, "12345678").substr(0, 9)));
  EXPECT_THAT(lines(), HasSubstr("it has the most streams"));
  few_server->Read(begin(*few, 9, 6));  // there is room again
}

TEST_F(Http2GuardTest, StreamsThatAreAnsweredCountNoMore) {
  Start({.open_streams = 10});
  const auto first = Connect();
  const auto first_server = Greeted(*first);
  const auto second = Connect();
  const auto second_server = Greeted(*second);
  const auto begin = [](const End& client, const End& server) {
    std::string frames;
    for (uint32_t stream = 1; stream < 17; stream += 2) {
      frames += Frame(FrameKind::kHeaders, kEndHeaders, stream, "x");
    }
    EXPECT_TRUE(client.Send(frames));
    EXPECT_EQ(server.Read(frames.size()), frames);
  };
  begin(*first, *first_server);
  std::string answers;
  for (uint32_t stream = 1; stream < 17; stream += 2) {
    answers += Frame(FrameKind::kHeaders, kEndHeaders | kEndStream, stream, "x");
  }
  ASSERT_TRUE(first_server->Send(answers));
  EXPECT_EQ(first->Read(answers.size()), answers);
  begin(*second, *second_server);
  const std::string ping = Frame(FrameKind::kPing, 0, 0, "12345678");
  ASSERT_TRUE(second->Send(ping));
  EXPECT_EQ(second_server->Read(ping.size()), ping);
  ASSERT_TRUE(first->Send(ping));
  EXPECT_EQ(first_server->Read(ping.size()), ping);
  EXPECT_EQ(lines(), "");
}

TEST_F(Http2GuardTest, ConnectionsAndDescriptorsAreBounded) {
  Start({.connections = 2});
  const auto first = Connect();
  const auto second = Connect();
  EXPECT_EQ(Connect()->Read(), "");
  EXPECT_THAT(lines(), HasSubstr("there are 2 already"));
  guard_.reset();
  Start({.max_descriptors = 3});
  const auto client = Connect();
  ASSERT_TRUE(client->Send(Hello()));
  EXPECT_EQ(client->Read(), "");
  EXPECT_THAT(lines(), HasSubstr("3 file descriptors are in use"));
}

TEST_F(Http2GuardTest, StopsWithinItsGrace) {
  Start({.opening_time = absl::Hours(1)});
  const auto opening = Connect();
  const auto client = Connect();
  const auto server = Greeted(*client);
  guard_->StopTaking();
  EXPECT_EQ(opening->Read(), "");
  EXPECT_EQ(Connect()->Read(), "");
  ASSERT_TRUE(client->Send(kBegun));  // who is there goes on
  EXPECT_EQ(server->Read(kBegun.size()), kBegun);
  const absl::Time begin = absl::Now();
  guard_->Stop(absl::Milliseconds(300));
  EXPECT_EQ(client->Read(), "");
  const absl::Duration took = absl::Now() - begin;
  EXPECT_GE(took, absl::Milliseconds(299));
  EXPECT_LT(took, absl::Seconds(5));
}

}  // namespace
}  // namespace skein::coordinator
