// What the guard makes of frames, however they are cut.
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "coordinator/http2_guard/client_frames.h"
#include "coordinator/http2_guard/hand_made_frames.h"
#include "coordinator/http2_guard/open_streams.h"
#include "coordinator/http2_guard/reset_budget.h"
#include "coordinator/http2_guard/server_frames.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace skein::coordinator {
namespace {

using ::testing::HasSubstr;

constexpr auto kData = FrameKind::kData;
constexpr auto kHeaders = FrameKind::kHeaders;
constexpr auto kContinuation = FrameKind::kContinuation;
constexpr auto kSettings = FrameKind::kSettings;
constexpr auto kPing = FrameKind::kPing;
const absl::Time kStart = absl::FromUnixSeconds(1000);

// A connection whose resets cost nothing.
struct Connection {
  explicit Connection(const ClientLimits& limits = {}) : frames(limits, &streams) {}

  // What comes out of `bytes`; says why it ends.
  std::string Take(std::string_view bytes, absl::Time now = kStart) {
    std::string out;
    while (true) {
      const ClientFrames::Taken taken = frames.Take(bytes, now, out);
      bytes.remove_prefix(taken.bytes);
      if (taken.violation) {
        violation = taken.violation;
        return out;
      }
      if (streams.unpaid_resets() == 0) break;
      streams.PayForReset();
      ++resets;
    }
    EXPECT_EQ(bytes, "");
    return out;
  }

  OpenStreams streams;
  ClientFrames frames;
  Violation violation;
  int resets = 0;
};

// However the bytes are cut in two, and byte by byte, the same comes out.
void ExpectOutput(const std::string& bytes, const std::string& expected) {
  for (size_t cut = 0; cut <= bytes.size(); ++cut) {
    Connection connection;
    std::string out = connection.Take(bytes.substr(0, cut));
    out += connection.Take(bytes.substr(cut));
    ASSERT_EQ(out, expected) << cut;
    ASSERT_FALSE(connection.violation) << connection.violation.why;
  }
  Connection connection;
  std::string out;
  for (const char byte : bytes) out += connection.Take({&byte, 1});
  EXPECT_EQ(out, expected);
}

std::string WhyNot(const std::string& frames, Http2Error code, const ClientLimits& limits = {}) {
  Connection connection(limits);
  connection.Take(Hello() + frames);
  EXPECT_EQ(connection.violation.code, code);
  return std::string(connection.violation.why);
}

TEST(ClientFramesTest, WhatIsNoMatterOfTheGuardPassesUnchanged) {
  const std::string bytes =
      Hello() + Frame(kHeaders, kEndHeaders, 1, "block") + Frame(kData, 0, 1, "abc") +
      Frame(kData, kEndStream, 1) + Frame(FrameKind::kWindowUpdate, 0, 0, "1234") +
      Frame(kPing, kAck, 0, "12345678") + Frame(kSettings, kAck, 0) + Reset(1) +
      Frame(kSettings, 0, 0, "123456") + Frame(kHeaders, kEndHeaders | kEndStream, 3, "more") +
      Frame(FrameKind::kGoaway, 0, 0, "12345678why") +
      Frame(kData, kEndStream, 0x7fffffff, std::string(20, '\0'));
  ExpectOutput(bytes, bytes);
}

TEST(ClientFramesTest, AHeaderBlockComesInOnePieceWithoutPaddingAndPriority) {
  const std::string hello = Hello();
  ExpectOutput(hello +
                   Frame(kHeaders, kEndStream | kPadded | kHasPriority, 5,
                         "\3PPPPPone" + std::string(3, 'p')) +
                   Frame(kContinuation, 0, 5, "two") + Frame(kContinuation, 0, 5) +
                   Frame(kContinuation, kEndHeaders, 5, "three") +
                   Frame(kHeaders, kEndHeaders | kHasPriority, 7, "PPPPPx") +
                   Frame(kHeaders, kEndHeaders | kPadded, 9, std::string(1, '\0') + "y"),
               hello + Frame(kHeaders, kEndStream | kEndHeaders, 5, "onetwothree") +
                   Frame(kHeaders, kEndHeaders, 7, "x") + Frame(kHeaders, kEndHeaders, 9, "y"));
}

TEST(ClientFramesTest, ALongBlockIsCutAsEveryReceiverTakesIt) {
  const std::string block = std::string(16384, 'a') + std::string(16384 - 1, 'b');
  Connection connection;
  connection.Take(Hello());
  std::string out = connection.Take(Frame(kHeaders, kEndStream, 1, block.substr(0, 30000)));
  EXPECT_EQ(out, "");
  out = connection.Take(Frame(kContinuation, kEndHeaders, 1, block.substr(30000)));
  EXPECT_EQ(out, Frame(kHeaders, kEndStream, 1, block.substr(0, 16384)) +
                     Frame(kContinuation, kEndHeaders, 1, block.substr(16384)));
}

TEST(ClientFramesTest, WhatGrpcReadsOverIsLeftOut) {
  const std::string hello = Hello();
  ExpectOutput(hello + Frame(FrameKind::kPriority, 0, 3, "12345") + Frame(kData, 0, 1) +
                   Frame(static_cast<FrameKind>(77), 255, 9, "whatever") + Frame(kData, 0, 1, "x"),
               hello + Frame(kData, 0, 1, "x"));
}

TEST(ClientFramesTest, NothingComesBeforeTheFirstFrameIsKnown) {
  const std::string hello = Hello();
  Connection connection;
  EXPECT_EQ(connection.Take(hello.substr(0, hello.size() - 1)), "");
  EXPECT_EQ(connection.Take(hello.substr(hello.size() - 1)), hello);
}

TEST(ClientFramesTest, WhoDoesNotSpeakHttp2Ends) {
  for (const std::string& bytes :
       {std::string("GET / HTTP/1.1\r\n\r\n"), std::string("\x16\x03\x01"),
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + Frame(kPing, 0, 0, "12345678"),
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + Frame(kSettings, kAck, 0)}) {
    Connection connection;
    EXPECT_EQ(connection.Take(bytes), "");
    EXPECT_EQ(connection.violation.code, Http2Error::kProtocol) << bytes;
  }
}

TEST(ClientFramesTest, FramesThatMustNotBeEndTheConnection) {
  const auto protocol = Http2Error::kProtocol;
  EXPECT_THAT(WhyNot(Frame(kHeaders, 0, 1, "x") + Frame(kPing, 0, 0, "12345678"), protocol),
              HasSubstr("within a header block"));
  EXPECT_THAT(WhyNot(Frame(kHeaders, 0, 1, "x") + Frame(kContinuation, 0, 3, "x"), protocol),
              HasSubstr("CONTINUATION"));
  EXPECT_THAT(WhyNot(Frame(kContinuation, kEndHeaders, 1, "x"), protocol),
              HasSubstr("CONTINUATION"));
  EXPECT_THAT(WhyNot(Frame(kContinuation, kEndHeaders, 0, "x"), protocol),
              HasSubstr("CONTINUATION"));
  for (const uint32_t stream : {0, 2}) {
    EXPECT_THAT(WhyNot(Frame(kHeaders, kEndHeaders, stream, "x"), protocol),
                HasSubstr("cannot be its own"));
  }
  EXPECT_THAT(WhyNot(Frame(FrameKind::kPushPromise, kEndHeaders, 1, "1234"), protocol),
              HasSubstr("PUSH_PROMISE"));
  EXPECT_THAT(WhyNot(Frame(kHeaders, kEndHeaders | kPadded, 1, "\5xxxx"), protocol),
              HasSubstr("padding"));
  EXPECT_THAT(WhyNot(Frame(kHeaders, kEndHeaders | kHasPriority, 1, "xxxx"), protocol),
              HasSubstr("padding"));
  const std::string long_payload(16385, 'x');
  for (const std::string& frame :
       {Frame(FrameKind::kRstStream, 0, 1, "123"), Frame(kPing, 0, 0, "123456789"),
        Frame(FrameKind::kWindowUpdate, 0, 0, ""), Frame(kSettings, 0, 0, long_payload),
        Frame(FrameKind::kGoaway, 0, 0, long_payload), Frame(kHeaders, kPadded, 1)}) {
    EXPECT_THAT(WhyNot(frame, Http2Error::kFrameSize), HasSubstr("length"));
  }
}

TEST(ClientFramesTest, HeaderBlocksHaveAnEnd) {
  const auto calm = Http2Error::kEnhanceYourCalm;
  const ClientLimits limits = {.header_block_bytes = 100, .continuations = 3};
  const std::string part(50, 'x');
  const std::string half = Frame(kHeaders, 0, 1, part);
  EXPECT_EQ(WhyNot(half + Frame(kContinuation, kEndHeaders, 1, part), Http2Error::kNone, limits),
            "");
  EXPECT_THAT(WhyNot(half + Frame(kContinuation, 0, 1, part + "x"), calm, limits),
              HasSubstr("too long"));
  // The length that a frame tells is enough.
  EXPECT_THAT(WhyNot(Frame(kHeaders, 0, 1, std::string(362, 'x')).substr(0, 9), calm, limits),
              HasSubstr("too long"));
  std::string frames = half;
  for (int i = 0; i < 3; ++i) frames += Frame(kContinuation, 0, 1);
  EXPECT_EQ(WhyNot(frames, Http2Error::kNone, limits), "");
  EXPECT_THAT(WhyNot(frames + Frame(kContinuation, 0, 1), calm, limits), HasSubstr("too long"));
}

TEST(ClientFramesTest, StreamsAtOnceAreCounted) {
  Connection connection({.open_streams = 2});
  const auto begin = [&](uint32_t stream) {
    return connection.Take(Frame(kHeaders, kEndHeaders, stream, "x"));
  };
  connection.Take(Hello());
  begin(1);
  begin(3);
  begin(3);  // trailers
  EXPECT_EQ(connection.streams.size(), 2u);
  connection.streams.End(1);
  begin(1);  // gRPC tells what it thinks of that
  begin(5);
  EXPECT_EQ(connection.streams.size(), 2u);
  EXPECT_FALSE(connection.violation);
  EXPECT_EQ(begin(7), "");
  EXPECT_EQ(connection.violation.code, Http2Error::kEnhanceYourCalm);
}

TEST(ClientFramesTest, SettingsMayComeNowAndThen) {
  Connection connection({.settings_burst = 3, .settings_per_second = 2});
  const std::string settings = Frame(kSettings, 0, 0, "123456");
  connection.Take(Hello() + settings + settings);
  for (int i = 0; i < 100; ++i) connection.Take(Frame(kSettings, kAck, 0));
  connection.Take(settings, kStart + absl::Milliseconds(500));
  EXPECT_FALSE(connection.violation);
  connection.Take(settings, kStart + absl::Milliseconds(900));
  EXPECT_EQ(connection.violation.code, Http2Error::kEnhanceYourCalm);
}

TEST(ClientFramesTest, BehindAResetTheRestWaits) {
  OpenStreams streams;
  ClientFrames frames({}, &streams);
  std::string out;
  const std::string begin = Hello() + Frame(kHeaders, kEndHeaders, 1, "x") +
                            Frame(kHeaders, kEndHeaders, 3, "x") + Reset(1);
  const std::string rest = Reset(3) + Frame(kData, 0, 1, "abc");
  EXPECT_EQ(frames.Take(begin + rest, kStart, out).bytes, begin.size());
  EXPECT_EQ(out, begin);
  EXPECT_EQ(frames.Take(rest, kStart, out).bytes, 0u);
  EXPECT_EQ(streams.unpaid_resets(), 1);
  streams.PayForReset();
  EXPECT_EQ(frames.Take(rest, kStart, out).bytes, Reset(3).size());
  EXPECT_EQ(streams.size(), 0u);
}

TEST(ClientFramesTest, ResetsOfWhatHasEndedCostNothing) {
  Connection connection;
  connection.Take(Hello() + Frame(kHeaders, kEndHeaders, 1, "x"));
  connection.streams.End(1);
  connection.Take(Reset(1) + Reset(1) + Reset(9));
  EXPECT_EQ(connection.resets, 0);
  connection.Take(Frame(kHeaders, kEndHeaders, 3, "x") + Reset(3) + Reset(3));
  EXPECT_EQ(connection.resets, 1);
}

TEST(ServerFramesTest, StreamsEndWithTheirAnswers) {
  const std::string bytes = Frame(kSettings, 0, 0, "123456") +
                            Frame(kHeaders, kEndHeaders, 1, "head") + Frame(kData, 0, 1, "abc") +
                            Frame(kHeaders, kEndHeaders | kEndStream, 1, "trailers") +
                            Frame(kData, kEndStream, 3, "x") + Reset(5, 0) + Reset(7, 2) +
                            Reset(7, 2) + Frame(kData, 0, 9, std::string(40, 'x'));
  for (size_t cut = 0; cut <= bytes.size(); ++cut) {
    OpenStreams streams;
    for (const uint32_t stream : {1, 3, 5, 7, 9}) streams.Begin(stream);
    ServerFrames frames(&streams);
    std::string out;
    frames.Take(bytes.substr(0, cut), out);
    frames.Take(bytes.substr(cut), out);
    ASSERT_EQ(out, bytes);
    ASSERT_EQ(streams.size(), 1u) << cut;  // 9
    ASSERT_EQ(streams.unpaid_resets(), 1) << cut;
    ASSERT_TRUE(frames.between_frames());
    frames.Take("x", out);
    ASSERT_FALSE(frames.between_frames());
  }
}

// As gRPC ends a call whose deadline has passed: the client made it begin what goes on.
TEST(ServerFramesTest, AResetRightBehindTheEndIsPaidForToo) {
  OpenStreams streams;
  streams.Begin(1);
  streams.Begin(3);
  streams.Begin(5);
  ServerFrames frames(&streams);
  std::string out;
  const std::string end_of_1 = Frame(FrameKind::kHeaders, kEndHeaders | kEndStream, 1, "x");
  const std::string end_of_3 = Frame(FrameKind::kHeaders, kEndHeaders | kEndStream, 3, "x");
  frames.Take(end_of_1 + end_of_3 + Reset(1, 0), out);
  EXPECT_EQ(streams.unpaid_resets(), 0);
  EXPECT_EQ(streams.size(), 1);
  frames.Take(Frame(FrameKind::kHeaders, kEndHeaders | kEndStream, 5, "x") + Reset(5, 0), out);
  EXPECT_EQ(streams.unpaid_resets(), 1);
  EXPECT_EQ(streams.size(), 0);
}

TEST(ServerFramesTest, AStreamThatHasBegunToBeAnsweredIsOpen) {
  OpenStreams streams;
  streams.Begin(1);
  ServerFrames frames(&streams);
  std::string out;
  frames.Take(Frame(kHeaders, kEndHeaders, 1, "head") + Frame(kData, 0, 1, "abc"), out);
  EXPECT_EQ(streams.size(), 1u);
  frames.Take(Frame(kHeaders, kEndStream, 1, "trailers").substr(0, 12), out);
  EXPECT_EQ(streams.size(), 1u);
}

std::string Update(uint32_t stream, uint32_t by) {
  std::string payload;
  AppendNumber(by, payload);
  return Frame(FrameKind::kWindowUpdate, 0, stream, payload);
}

std::string InitialWindow(uint32_t size) {
  std::string setting = {0, 4};
  AppendNumber(size, setting);
  return setting;
}

TEST(HeldUpdatesTest, UpdatesWaitForOtherFramesOrUntilTheyAreMany) {
  Connection connection;
  connection.Take(Hello());
  const std::string some = Update(1, 100) + Update(0, 100);
  EXPECT_EQ(connection.Take(some), "");
  const std::string ping = Frame(kPing, kAck, 0, "12345678");
  EXPECT_EQ(connection.Take(ping), some + ping);
  EXPECT_EQ(connection.Take(some), "");
  const std::string headers = Frame(kHeaders, kEndHeaders, 1, "x");
  EXPECT_EQ(connection.Take(headers), some + headers);
  // Bytes that they give.
  EXPECT_EQ(connection.Take(Update(1, 8191)), "");
  EXPECT_EQ(connection.Take(Update(0, 1)), Update(1, 8191) + Update(0, 1));
  EXPECT_EQ(connection.Take(Update(0, 0x7fffffff)), Update(0, 0x7fffffff));
  // Bytes that they take.
  std::string out;
  for (int i = 0; i < 1000; ++i) out += connection.Take(Update(0, 1));
  EXPECT_GT(out.size(), 10'000u);
  EXPECT_EQ(connection.Take(ping).size() + out.size(), 13'000 + ping.size());
  // When it is asked for, also within a frame.
  EXPECT_EQ(connection.Take((some + some).substr(0, 35)), "");
  out = "";
  connection.frames.updates().Release(out);
  EXPECT_EQ(out, (some + some).substr(0, 35));
  EXPECT_EQ(connection.Take((some + some).substr(35) + ping), (some + some).substr(35) + ping);
}

TEST(HeldUpdatesTest, WhoHasSmallWindowsWaitsForNothing) {
  Connection connection;
  connection.Take(Hello() + Frame(kSettings, 0, 0, InitialWindow(1 << 20) + InitialWindow(30000)));
  EXPECT_EQ(connection.Take(Update(1, 1)), Update(1, 1));
  connection.Take(Frame(kSettings, 0, 0, InitialWindow(65535)));
  EXPECT_EQ(connection.Take(Update(1, 1)), "");
}

TEST(HeldUpdatesTest, TheyWaitOnTheirWayToClientsToo) {
  OpenStreams streams;
  ServerFrames frames(&streams);
  std::string out;
  frames.Take(Update(1, 1), out);
  EXPECT_EQ(out, "");
  frames.Take(Frame(kData, 0, 1, "x"), out);
  EXPECT_EQ(out, Update(1, 1) + Frame(kData, 0, 1, "x"));
}

TEST(ResetBudgetTest, PaysForABurstAndThenAtItsRate) {
  ResetBudget budget({.burst = 3, .per_second = 10});
  const auto paid = [&](absl::Time now) {
    int count = 0;
    while (budget.Pay(now)) ++count;
    return count;
  };
  EXPECT_EQ(paid(kStart), 3);
  EXPECT_EQ(budget.next(kStart), kStart + absl::Milliseconds(100));
  EXPECT_EQ(paid(kStart + absl::Milliseconds(99)), 0);
  EXPECT_EQ(paid(kStart + absl::Milliseconds(210)), 2);
  EXPECT_EQ(paid(kStart + absl::Seconds(100)), 3);
  // The time of day jumps back: nobody waits until it comes again.
  EXPECT_EQ(paid(kStart - absl::Hours(1)), 0);
  EXPECT_EQ(paid(kStart - absl::Hours(1) + absl::Milliseconds(210)), 2);
}

}  // namespace
}  // namespace skein::coordinator
