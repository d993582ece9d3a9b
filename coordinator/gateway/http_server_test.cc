#include "coordinator/gateway/http_server.h"

#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/mutex.h"
#include "base/test_util.h"
#include "coordinator/gateway/http_client_for_tests.h"

namespace skein::coordinator {
namespace {

using ::testing::HasSubstr;

// Parts that a test gives one by one.
class Script {
 public:
  void Give(HttpAnswer::Part part) {
    HttpServer::Wake wake;
    {
      MutexLock lock(&mutex_);
      parts_.push_back(std::move(part));
      wake = wake_;
    }
    if (wake) wake();
  }
  std::unique_ptr<HttpAnswer> Answer(HttpServer::Wake wake) {
    MutexLock lock(&mutex_);
    wake_ = std::move(wake);
    return std::make_unique<Reader>(this);
  }
  void Reset() {
    asked_ = 0;
    gone_ = false;
  }
  int asked() const { return asked_; }
  bool gone() const { return gone_; }
  std::function<HttpAnswer::Part()> endless;  // where it is set

 private:
  class Reader : public HttpAnswer {
   public:
    explicit Reader(Script* script) : script_(*script) {}
    ~Reader() override { script_.gone_ = true; }
    Part Next() override {
      ++script_.asked_;
      if (script_.endless) return script_.endless();
      MutexLock lock(&script_.mutex_);
      if (script_.parts_.empty()) return {};
      Part part = std::move(script_.parts_.front());
      script_.parts_.erase(script_.parts_.begin());
      return part;
    }

   private:
    Script& script_;
  };

  Mutex mutex_;
  std::vector<HttpAnswer::Part> parts_ ABSL_GUARDED_BY(mutex_);
  HttpServer::Wake wake_ ABSL_GUARDED_BY(mutex_);
  std::atomic<int> asked_ = 0;
  std::atomic<bool> gone_ = false;
};

std::unique_ptr<HttpAnswer> Text(int status, std::string_view text) {
  return std::make_unique<WholeAnswer>(HttpHead{.status = status, .content_type = "text/plain"},
                                       std::string(text));
}

template <typename Predicate>
bool WaitFor(const Predicate& predicate) {
  const absl::Time until = absl::Now() + absl::Seconds(20);
  while (!predicate()) {
    if (absl::Now() > until) return false;
    absl::SleepFor(absl::Milliseconds(2));
  }
  return true;
}

// /echo answers with what it got, /script with what the test gives.
class HttpServerTest : public ::testing::Test {
 protected:
  void Start(HttpServerOptions options = {}) {
    options.listen = "127.0.0.1:0";
    SKEIN_ASSERT_OK_AND_ASSIGN(server_,
                               HttpServer::Start(
                                   options,
                                   [this](const HttpRequest& request, HttpServer::Wake wake) {
                                     return Handle(request, std::move(wake));
                                   },
                                   Text));
  }
  std::unique_ptr<HttpAnswer> Handle(const HttpRequest& request, HttpServer::Wake wake) {
    if (request.path == "/script") return script_.Answer(std::move(wake));
    if (request.path == "/throw") throw std::runtime_error("thrown");
    return Text(200, absl::StrCat(request.method, " ", request.path, "?", request.query, " ",
                                  std::string(request.Header("x-test")), " ", request.body));
  }

  Script script_;
  std::unique_ptr<HttpServer> server_;
};

TEST_F(HttpServerTest, AConnectionServesRequestAfterRequest) {
  Start();
  HttpTestClient client(server_->address());
  for (int i = 0; i < 3; ++i) {
    client.Send(absl::StrCat("POST /echo/", i, "?a=b&c HTTP/1.1\r\nX-Test: yes\r\n",
                             "Content-Length: 4\r\n\r\nbody"));
    HttpTestClient::Response response = client.Read();
    EXPECT_EQ(response.status, 200);
    EXPECT_EQ(response.headers["content-type"], "text/plain");
    EXPECT_EQ(response.headers["connection"], "keep-alive");
    EXPECT_EQ(response.body, absl::StrCat("POST /echo/", i, "?a=b&c yes body"));
  }
  EXPECT_EQ(server_->connections(), 1);
  client.Send("GET /echo HTTP/1.1\r\nConnection: close\r\n\r\n");
  EXPECT_EQ(client.Read().headers["connection"], "close");
  EXPECT_TRUE(client.IsClosed());
  client.Close();
  EXPECT_TRUE(WaitFor([&] { return server_->connections() == 0; }));
}

TEST_F(HttpServerTest, RequestsSentAheadAreAnsweredInTheirOrder) {
  Start();
  HttpTestClient client(server_->address());
  client.Send("GET /script HTTP/1.1\r\n\r\nGET /a HTTP/1.1\r\n\r\nGET /b HTTP/1.1\r\n\r\n");
  EXPECT_TRUE(WaitFor([&] { return script_.asked() > 0; }));
  script_.Give({HttpHead{}, "first", true});
  EXPECT_EQ(client.Read().body, "first");
  EXPECT_EQ(client.Read().body, "GET /a?  ");
  EXPECT_EQ(client.Read().body, "GET /b?  ");
}

TEST_F(HttpServerTest, PartsComeAsTheyAreThere) {
  Start();
  HttpTestClient client(server_->address());
  client.Get("/script");
  script_.Give({HttpHead{.status = 201, .content_type = "text/event-stream"}, "", false});
  HttpTestClient::Response head = client.ReadHead();
  EXPECT_EQ(head.status, 201);
  EXPECT_EQ(head.headers["transfer-encoding"], "chunked");
  for (const std::string part : {"one", "two, and longer than fifteen bytes"}) {
    script_.Give({.bytes = part});
    EXPECT_EQ(client.ReadChunk(), part);
  }
  EXPECT_FALSE(script_.gone());
  script_.Give({.bytes = "end", .last = true});
  EXPECT_EQ(client.ReadChunk(), "end");
  EXPECT_EQ(client.ReadChunk(), "");
  EXPECT_TRUE(WaitFor([&] { return script_.gone(); }));
  client.Get("/echo");  // the connection goes on
  EXPECT_EQ(client.Read().status, 200);
}

TEST_F(HttpServerTest, OldClientsGetAnswersWithoutChunks) {
  Start();
  HttpTestClient client(server_->address());
  client.Send("GET /script HTTP/1.0\r\n\r\n");
  script_.Give({HttpHead{}, "one ", false});
  script_.Give({.bytes = "two", .last = true});
  EXPECT_THAT(client.ReadUntil("two"),
              AllOf(HasSubstr("\r\n\r\none two"), HasSubstr("Connection: close\r\n")));
  EXPECT_TRUE(client.IsClosed());
}

TEST_F(HttpServerTest, HeadHasNoBody) {
  Start();
  HttpTestClient client(server_->address());
  client.Send("HEAD /echo HTTP/1.1\r\n\r\n");
  EXPECT_EQ(client.ReadHead().headers["content-length"], "13");
  client.Get("/echo");
  EXPECT_EQ(client.Read().body, "GET /echo?  ");
}

TEST_F(HttpServerTest, AClientThatGoesAwayEndsItsAnswer) {
  Start();
  for (const bool begun : {false, true}) {
    SCOPED_TRACE(begun);
    script_.Reset();
    HttpTestClient client(server_->address());
    client.Get("/script");
    EXPECT_TRUE(WaitFor([&] { return script_.asked() > 0; }));
    if (begun) {
      script_.Give({HttpHead{}, "one", false});
      EXPECT_EQ(client.ReadHead().status, 200);
    }
    EXPECT_FALSE(script_.gone());
    client.Close();
    const absl::Time closed = absl::Now();
    EXPECT_TRUE(WaitFor([&] { return script_.gone() && server_->connections() == 0; }));
    EXPECT_LT(absl::Now() - closed, absl::Seconds(2));
  }
}

// What watched for the client during the answer before may wake by the request itself.
TEST_F(HttpServerTest, SoDoesOneThatWasAnsweredBefore) {
  Start();
  for (int i = 0; i < 30; ++i) {
    script_.Reset();
    HttpTestClient client(server_->address());
    client.Get("/script");
    ASSERT_TRUE(WaitFor([&] { return script_.asked() > 0; }));
    script_.Give({HttpHead{}, "one", true});
    ASSERT_EQ(client.Read().body, "one");
    ASSERT_TRUE(WaitFor([&] { return script_.gone(); }));
    script_.Reset();
    client.Get("/script");
    ASSERT_TRUE(WaitFor([&] { return script_.asked() > 0; }));
    client.Close();
    const absl::Time closed = absl::Now();
    ASSERT_TRUE(WaitFor([&] { return script_.gone(); }));
    ASSERT_LT(absl::Now() - closed, absl::Seconds(2)) << i;
  }
}

TEST_F(HttpServerTest, SlowReadersHoldUpTheirAnswersAlone) {
  Start();
  script_.endless = [this] {
    HttpAnswer::Part part = {.bytes = std::string(1 << 20, 'x')};
    if (script_.asked() == 1) part.head = HttpHead{};
    return part;
  };
  HttpTestClient slow(server_->address(), 4096);
  slow.Get("/script");
  EXPECT_TRUE(WaitFor([&] { return script_.asked() > 1; }));
  HttpTestClient other(server_->address());
  for (int i = 0; i < 50; ++i) {
    other.Get("/echo");
    EXPECT_EQ(other.Read().status, 200);
  }
  // What the kernel takes, and no more.
  EXPECT_LT(script_.asked(), 20);
  slow.Close();
  EXPECT_TRUE(WaitFor([&] { return script_.gone(); }));
}

TEST_F(HttpServerTest, AReaderThatTakesNothingIsLetGo) {
  Start({.write_timeout = absl::Milliseconds(100)});
  script_.endless = [this] {
    HttpAnswer::Part part = {.bytes = std::string(8 << 20, 'x')};
    if (script_.asked() == 1) part.head = HttpHead{};
    return part;
  };
  HttpTestClient slow(server_->address(), 4096);
  slow.Get("/script");
  EXPECT_TRUE(WaitFor([&] { return script_.gone(); }));
}

TEST_F(HttpServerTest, FillersShowThatAnAnswerIsAlive) {
  Start({.filler_period = absl::Milliseconds(20)});
  HttpTestClient client(server_->address());
  client.Get("/script");
  absl::SleepFor(absl::Milliseconds(100));  // without a head there is nothing to fill
  script_.Give({HttpHead{}, "one", false, ": \n"});
  client.ReadHead();
  EXPECT_EQ(client.ReadChunk(), "one");
  EXPECT_EQ(client.ReadChunk(), ": \n");
  EXPECT_EQ(client.ReadChunk(), ": \n");
  script_.Give({.bytes = "two", .last = true});
  std::string rest;
  for (std::string chunk; !(chunk = client.ReadChunk()).empty();) rest = chunk;
  EXPECT_EQ(rest, "two");
}

TEST_F(HttpServerTest, WhatIsNoRequestIsRefusedByItsReason) {
  Start({.header_bytes = 512,
         .body_bytes = 64,
         .idle_timeout = absl::Milliseconds(300),
         .body_timeout = absl::Milliseconds(300)});
  const struct {
    std::string name, bytes;
    int status;
    std::string why;
  } kCases[] = {
      {"nonsense", "what is this\r\n\r\n", 400, "no HTTP/1.1 request"},
      {"header", absl::StrCat("GET / HTTP/1.1\r\nX: ", std::string(600, 'x'), "\r\n\r\n"), 431,
       "longer than 512 bytes"},
      {"body", "POST / HTTP/1.1\r\nContent-Length: 65\r\n\r\n", 413, "longer than 64 bytes"},
      {"chunked body",
       absl::StrCat("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n50\r\n",
                    std::string(80, 'x'), "\r\n0\r\n\r\n"),
       413, "longer than 64 bytes"},
      {"length", "POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 400, "no HTTP/1.1 request"},
      // What a proxy in front may take for something else.
      {"coding", "POST / HTTP/1.1\r\nTransfer-Encoding: identity\r\n\r\n", 400,
       "Transfer-Encoding"},
      {"two codings", "POST / HTTP/1.1\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 400,
       "Transfer-Encoding"},
      {"coding and length",
       "POST / HTTP/1.1\r\nContent-Length: 3\r\nTransfer-Encoding: x\r\n\r\nabc", 400,
       "Transfer-Encoding"},
      {"chunks of HTTP/1.0", "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400,
       ""},
      {"slow header", "GET / HTTP/1.1\r\nX: ", 408, "in time"},
      {"slow body", "POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\nabc", 408, "in time"},
  };
  for (const auto& c : kCases) {
    SCOPED_TRACE(c.name);
    HttpTestClient client(server_->address());
    client.Send(c.bytes);
    const HttpTestClient::Response response = client.Read();
    EXPECT_EQ(response.status, c.status);
    EXPECT_THAT(response.body, HasSubstr(c.why));
    EXPECT_TRUE(client.IsClosed());
  }
  HttpTestClient idle(server_->address());
  EXPECT_TRUE(idle.IsClosed());  // without a word
}

TEST_F(HttpServerTest, LargeBodiesMayBeAskedForFirst) {
  Start();
  HttpTestClient client(server_->address());
  client.Send("POST /echo HTTP/1.1\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n");
  EXPECT_EQ(client.ReadUntil("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  client.Send("abc");
  EXPECT_EQ(client.Read().body, "POST /echo?  abc");
}

TEST_F(HttpServerTest, WhatAHandlerThrowsIsAnErrorOfTheServer) {
  Start();
  HttpTestClient client(server_->address());
  client.Get("/throw");
  EXPECT_EQ(client.Read().status, 500);
  client.Get("/echo");
  EXPECT_EQ(client.Read().status, 200);
  // Before the first part, and behind it.
  script_.endless = []() -> HttpAnswer::Part { throw std::runtime_error("thrown"); };
  client.Get("/script");
  EXPECT_EQ(client.Read().status, 500);
  script_.Reset();
  script_.endless = [this]() -> HttpAnswer::Part {
    if (script_.asked() > 1) throw std::runtime_error("thrown");
    return {HttpHead{}, "one", false};
  };
  client.Get("/script");
  client.ReadHead();
  EXPECT_EQ(client.ReadChunk(), "one");
  EXPECT_TRUE(client.IsClosed());  // no last chunk: the answer is broken off
}

TEST_F(HttpServerTest, ConnectionsHaveABound) {
  Start({.max_connections = 2});
  HttpTestClient first(server_->address()), second(server_->address());
  for (HttpTestClient* client : {&first, &second}) {
    client->Get("/echo");
    EXPECT_EQ(client->Read().status, 200);
  }
  HttpTestClient third(server_->address());
  third.Get("/echo");
  const HttpTestClient::Response refused = third.Read();
  EXPECT_EQ(refused.status, 503);
  EXPECT_EQ(refused.body, "there are 2 connections already");
  first.Close();
  EXPECT_TRUE(WaitFor([&] {
    HttpTestClient again(server_->address());
    again.Get("/echo");
    return again.Read().status == 200;
  }));
}

// Whoever sends large bodies slowly keeps out others with large ones, but none with small ones.
TEST_F(HttpServerTest, LargeBodiesHaveABoundTogether) {
  constexpr int64_t kLarge = 100'000;
  Start({.all_bodies_bytes = 2 * kLarge});
  const std::string head = absl::StrCat("POST /echo HTTP/1.1\r\nContent-Length: ", kLarge, "\r\n");
  HttpTestClient first(server_->address()), second(server_->address());
  for (HttpTestClient* client : {&first, &second}) {
    client->Send(head + "Expect: 100-continue\r\n\r\n");
    client->ReadUntil("\r\n\r\n");
  }
  const auto status_of = [&](const std::string& request) {
    HttpTestClient client(server_->address());
    client.Send(request);
    return client.Read().status;
  };
  EXPECT_EQ(status_of(head + "\r\n"), 503);
  // One that does not say how long it is may be as long as any.
  EXPECT_EQ(status_of("POST /echo HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"), 503);
  EXPECT_EQ(status_of("POST /echo HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc"), 200);
  EXPECT_EQ(status_of("GET /echo HTTP/1.1\r\n\r\n"), 200);
  // Room comes back, both from one that is answered and from one that leaves.
  first.Send(std::string(kLarge, 'x'));
  EXPECT_EQ(first.Read().status, 200);
  second.Close();
  const std::string whole = head + "\r\n" + std::string(kLarge, 'x');
  EXPECT_EQ(status_of(whole), 200);
  EXPECT_TRUE(WaitFor([&] {
    HttpTestClient a(server_->address()), b(server_->address());
    for (HttpTestClient* client : {&a, &b}) client->Send(head + "Expect: 100-continue\r\n\r\n");
    return a.ReadUntil("\r\n\r\n").find("100") != std::string::npos &&
           b.ReadUntil("\r\n\r\n").find("100") != std::string::npos;
  }));
}

TEST_F(HttpServerTest, AThousandIdleConnectionsAreHeld) {
  rlimit limit = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  limit.rlim_cur = limit.rlim_max;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  Start();
  std::vector<std::unique_ptr<HttpTestClient>> clients;
  for (int i = 0; i < 1000; ++i) {
    clients.push_back(std::make_unique<HttpTestClient>(server_->address()));
  }
  EXPECT_TRUE(WaitFor([&] { return server_->connections() == 1000; }));
  for (const auto& client : clients) {
    client->Get("/echo");
    ASSERT_EQ(client->Read().status, 200);
  }
}

TEST_F(HttpServerTest, ShutdownLetsAnswersEndWithinItsGrace) {
  Start();
  HttpTestClient idle(server_->address()), busy(server_->address());
  idle.Get("/echo");
  idle.Read();
  busy.Get("/script");
  EXPECT_TRUE(WaitFor([&] { return script_.asked() > 0; }));
  std::thread ends([&] {
    absl::SleepFor(absl::Milliseconds(100));
    script_.Give({HttpHead{}, "late", true});
  });
  server_->Shutdown(absl::Seconds(20));
  ends.join();
  EXPECT_TRUE(idle.IsClosed());
  EXPECT_EQ(busy.Read().body, "late");
}

TEST_F(HttpServerTest, ShutdownEndsWhatTakesLonger) {
  Start();
  HttpTestClient busy(server_->address());
  busy.Get("/script");
  EXPECT_TRUE(WaitFor([&] { return script_.asked() > 0; }));
  const absl::Time begin = absl::Now();
  server_->Shutdown(absl::Milliseconds(50));
  EXPECT_LT(absl::Now() - begin, absl::Seconds(5));
  EXPECT_TRUE(script_.gone());
}

TEST(HttpServerStartTest, AddressesOfIpVersion6StandInBrackets) {
  const int probe = socket(AF_INET6, SOCK_STREAM, 0);
  sockaddr_in6 loopback = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
  const bool has = bind(probe, reinterpret_cast<sockaddr*>(&loopback), sizeof(loopback)) == 0;
  close(probe);
  if (!has) GTEST_SKIP() << "this host has no ::1";
  const auto server = HttpServer::Start({.listen = "[::1]:0"}, nullptr, nullptr);
  SKEIN_ASSERT_OK(server);
  EXPECT_THAT((*server)->address(), ::testing::StartsWith("[::1]:"));
}

TEST(HttpServerStartTest, AnAddressThatIsTakenIsSaid) {
  const auto handler = [](const HttpRequest&, HttpServer::Wake) { return Text(200, ""); };
  SKEIN_ASSERT_OK_AND_ASSIGN(const auto first,
                             HttpServer::Start({.listen = "127.0.0.1:0"}, handler, Text));
  EXPECT_THAT(HttpServer::Start({.listen = first->address()}, handler, Text).status(),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr(first->address())));
  EXPECT_THAT(HttpServer::Start({.listen = "nowhere"}, handler, Text).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("nowhere")));
}

}  // namespace
}  // namespace skein::coordinator
