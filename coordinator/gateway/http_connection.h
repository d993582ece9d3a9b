// A connection of HttpServer: reads its requests, and writes their answers. Boost's parts of the
// server are this, http_message.h, http_stream.h and http_server.cc, which alone includes them.
#pragma once

#include <poll.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "boost/asio/as_tuple.hpp"
#include "boost/asio/awaitable.hpp"
#include "boost/asio/co_spawn.hpp"
#include "boost/asio/detached.hpp"
#include "boost/asio/io_context.hpp"
#include "boost/asio/post.hpp"
#include "boost/asio/steady_timer.hpp"
#include "boost/asio/strand.hpp"
#include "boost/asio/thread_pool.hpp"
#include "boost/asio/use_awaitable.hpp"
#include "boost/asio/write.hpp"
#include "boost/beast/core/flat_buffer.hpp"
#include "boost/beast/http/parser.hpp"
#include "boost/beast/http/read.hpp"
#include "boost/beast/http/string_body.hpp"
#include "coordinator/gateway/body_budget.h"
#include "coordinator/gateway/http_message.h"
#include "coordinator/gateway/http_server.h"
#include "coordinator/gateway/http_stream.h"
#include "spdlog/spdlog.h"

namespace skein::coordinator {

inline constexpr size_t kSliceBytes = size_t{256}
                                      << 10;  // a client that takes so many is no slow one

// Connections may have so many bytes each beside the budget of bodies: who sends large ones slowly
// keeps no small one out.
inline constexpr int64_t kSmallBodyBytes = int64_t{64} << 10;

// Errors come as values.
inline constexpr auto kAwait = asio::as_tuple(asio::use_awaitable);

inline std::chrono::steady_clock::duration Chrono(absl::Duration duration) {
  return absl::ToChronoNanoseconds(duration);
}

// The open connections, to be ended together.
template <typename T>
class Members {
 public:
  void Add(T* member) {
    MutexLock lock(&mutex_);
    members_.insert(member);
  }
  void Remove(T* member) {
    MutexLock lock(&mutex_);
    members_.erase(member);
  }
  int64_t size() const {
    MutexLock lock(&mutex_);
    return static_cast<int64_t>(members_.size());
  }
  template <typename Visit>
  void ForEach(const Visit& visit) {
    MutexLock lock(&mutex_);
    for (T* member : members_) visit(*member);
  }

 private:
  mutable Mutex mutex_;
  std::set<T*> members_ ABSL_GUARDED_BY(mutex_);
};

// One client. All of it but Wake runs on the strand of its socket.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(Tcp::socket socket, const TlsContext& tls, const HttpServerOptions& options,
             const HttpServer::Handler& handler, const HttpServer::Refusal& refusal,
             asio::thread_pool& handlers, BodyBudget& bodies, Members<Connection>& all)
      : options_(options),
        handler_(handler),
        refusal_(refusal),
        handlers_(handlers),
        bodies_(bodies),
        all_(all),
        stream_(std::move(socket), tls),
        timer_(stream_.get_executor()),
        deadline_(stream_.get_executor()),
        look_(stream_.get_executor()) {}
  ~Connection() { all_.Remove(this); }

  // Where `refused` says why, that is the answer to whatever is asked.
  static asio::awaitable<void> Run(std::shared_ptr<Connection> self, std::string refused) {
    co_await self->Serve(refused);
  }

  // Any thread, once it is shared. Ends an idle connection, and with `now` one that is answered,
  // too.
  void Stop(bool now) {
    asio::post(stream_.get_executor(), [weak = weak_from_this(), now] {
      const auto self = weak.lock();
      if (self == nullptr) return;
      self->stopping_ = true;
      if (!now && self->answering_) return;
      self->closed_ = true;
      self->timer_.cancel();
      self->stream_.tcp().close();
    });
  }

 private:
  asio::awaitable<void> Serve(const std::string& refused) {
    Error ignored;
    stream_.tcp().socket().set_option(Tcp::no_delay(true), ignored);
    stream_.tcp().socket().non_blocking(true, ignored);  // of Watch's look
    if (stream_.has_tls() && (!refused.empty() || !co_await Greet())) {
      // A handshake costs more than who is refused shall cost.
      stream_.tcp().close();
      co_return;
    }
    if (!refused.empty()) {
      co_await Refuse(503, refused);
    } else {
      while (!stopping_ && co_await ServeOne()) {
      }
    }
    stream_.tcp().expires_after(std::chrono::seconds(1));
    if (stream_.has_tls() && !closed_) co_await stream_.async_shutdown(kAwait);
    stream_.tcp().socket().shutdown(Tcp::socket::shutdown_send, ignored);
    // What the client still sends is read, lest the answer be thrown away with the connection.
    for (Error error; !error && !stopping_;) {
      std::array<char, 4096> rest;
      std::tie(error, std::ignore) =
          co_await stream_.tcp().async_read_some(asio::buffer(rest), kAwait);
    }
    stream_.tcp().close();
  }

  // False: the client speaks no TLS, or other than is spoken here, or does not come to an end.
  asio::awaitable<bool> Greet() {
    stream_.tcp().expires_after(Chrono(options_.handshake_timeout));
    const auto [error] = co_await stream_.async_handshake(kAwait);
    if (error) spdlog::debug("a TLS handshake failed: {}", error.message());
    co_return !error && !stopping_;
  }

  // Lets other threads wake a connection for as long as it answers a request.
  class Waker {
   public:
    explicit Waker(Connection* connection) : connection_(connection) {}
    void Wake() {
      MutexLock lock(&mutex_);
      if (connection_ != nullptr) connection_->Wake();
    }
    void End() {
      MutexLock lock(&mutex_);
      connection_ = nullptr;
    }

   private:
    Mutex mutex_;
    Connection* connection_ ABSL_GUARDED_BY(mutex_);
  };
  class WakerEnd {
   public:
    explicit WakerEnd(Waker& waker) : waker_(waker) {}
    ~WakerEnd() { waker_.End(); }

   private:
    Waker& waker_;
  };

  // Whether the next request may come.
  asio::awaitable<bool> ServeOne() {
    http::request_parser<http::string_body> parser;
    parser.header_limit(options_.header_bytes);
    parser.body_limit(options_.body_bytes);
    stream_.tcp().expires_never();
    SetDeadline(options_.idle_timeout);
    auto [error, bytes] = co_await http::async_read_header(stream_, buffer_, parser, kAwait);
    if (!error && HasOddFraming(parser.get())) {
      co_await Refuse(400, "Transfer-Encoding is not as HTTP/1.1 has it");
      co_return false;
    }
    BodyBudget::Share share;
    if (!error && BodyBytes(parser) > kSmallBodyBytes) {
      share = bodies_.Take(BodyBytes(parser));
      if (!share) {
        EndDeadline();
        co_await Refuse(503, absl::StrCat("large requests that came before take ",
                                          options_.all_bodies_bytes, " bytes; try again"));
        co_return false;
      }
    }
    if (!error && !co_await Continue(parser)) co_return false;
    if (!error) {
      SetDeadline(options_.body_timeout);
      std::tie(error, bytes) = co_await http::async_read(stream_, buffer_, parser, kAwait);
    }
    EndDeadline();
    if (closed_) co_return false;
    if (error) {
      const auto [status, why] = WhyNot(error, parser.got_some());
      if (status > 0) co_await Refuse(status, why);
      co_return false;
    }
    http::request<http::string_body> request = parser.release();
    const Framing framing = {
        .keep_alive = request.keep_alive() && request.version() >= 11,
        .chunks = request.version() >= 11,
        .no_body = request.method() == http::verb::head,
    };
    answering_ = true;
    const auto waker = std::make_shared<Waker>(this);
    const WakerEnd end(*waker);
    // Named, since g++ 12 destroys temporaries of a co_await twice.
    HttpServer::Wake wake = [waker] { waker->Wake(); };
    HttpRequest copy = Copy(request);
    copy.client = Client();
    auto handled = Handle(std::move(copy), std::move(wake));
    const std::unique_ptr<HttpAnswer> answer =
        co_await asio::co_spawn(handlers_, std::move(handled), asio::use_awaitable);
    share = BodyBudget::Share();
    const bool written = co_await Write(*answer, framing);
    answering_ = false;
    co_return written&& framing.keep_alive;
  }

  std::string Client() {
    Error error;
    const Tcp::endpoint end = stream_.tcp().socket().remote_endpoint(error);
    if (error) return "";
    const std::string address = end.address().to_string(error);
    return end.address().is_v6() ? absl::StrCat("[", address, "]:", end.port())
                                 : absl::StrCat(address, ":", end.port());
  }

  // On a thread for handlers: the connections' own threads have others to serve.
  asio::awaitable<std::unique_ptr<HttpAnswer>> Handle(HttpRequest request, HttpServer::Wake wake) {
    try {
      co_return handler_(request, std::move(wake));
    } catch (const std::exception& thrown) {
      co_return Failed(thrown);
    }
  }
  std::unique_ptr<HttpAnswer> Failed(const std::exception& thrown) const {
    spdlog::error("an HTTP request failed: {}", thrown.what());
    return refusal_(500, kInternalError);
  }

  // What proxies may read otherwise (RFC 9112, 6.3): a coding that is not "chunked" alone, or
  // beside a length.
  static bool HasOddFraming(const http::request<http::string_body>& request) {
    const auto codings = request.count(http::field::transfer_encoding);
    if (codings == 0) return request.count(http::field::content_length) > 1;
    return codings > 1 || request.version() < 11 ||
           request.count(http::field::content_length) > 0 ||
           !beast::iequals(request[http::field::transfer_encoding], "chunked");
  }

  // Ends reads, and leaves the connection open for the answer, which the stream's own limit would
  // not.
  void SetDeadline(absl::Duration duration) {
    late_ = false;
    deadline_.expires_after(Chrono(duration));
    deadline_.async_wait([weak = weak_from_this(), number = ++deadlines_](const Error& error) {
      const auto self = weak.lock();
      // One that was ended may be on its way already.
      if (error || self == nullptr || number != self->deadlines_) return;
      self->late_ = true;
      self->stream_.tcp().cancel();
    });
  }
  void EndDeadline() {
    ++deadlines_;
    deadline_.cancel();
  }

  // What a body counts in the budget.
  template <typename Parser>
  int64_t BodyBytes(const Parser& parser) const {
    const auto most = static_cast<int64_t>(options_.body_bytes);
    if (parser.chunked()) return most;
    return std::min(static_cast<int64_t>(parser.content_length().value_or(0)), most);
  }

  // Clients that send large bodies ask first.
  template <typename Parser>
  asio::awaitable<bool> Continue(const Parser& parser) {
    if (!beast::iequals(parser.get()[http::field::expect], "100-continue")) co_return true;
    constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
    const auto [error, bytes] =
        co_await asio::async_write(stream_, asio::buffer(kContinue), kAwait);
    co_return !error;
  }

  // The status to answer with; 0: nobody is there to hear it.
  std::pair<int, std::string> WhyNot(const Error& error, bool begun) const {
    if (error == http::error::body_limit) {
      return {413, absl::StrCat("the body is longer than ", options_.body_bytes, " bytes")};
    }
    if (error == http::error::header_limit) {
      return {431, absl::StrCat("the header is longer than ", options_.header_bytes, " bytes")};
    }
    if (late_) return {begun ? 408 : 0, "the request did not come to its end in time"};
    if (error == http::error::end_of_stream || error == http::error::partial_message ||
        error.category() != make_error_code(http::error::bad_method).category()) {
      return {0, ""};
    }
    return {400, absl::StrCat("this is no HTTP/1.1 request: ", error.message())};
  }

  asio::awaitable<void> Refuse(int status, std::string why) {
    const std::unique_ptr<HttpAnswer> answer = refusal_(status, why);
    co_await Write(*answer, Framing());
  }

  // What is thrown ends the answer, and the connection where a part of it is out.
  std::optional<HttpAnswer::Part> NextOf(HttpAnswer& answer, bool begun) const {
    try {
      return answer.Next();
    } catch (const std::exception& thrown) {
      if (!begun) return Failed(thrown)->Next();
      spdlog::error("an HTTP answer broke off: {}", thrown.what());
      return std::nullopt;
    }
  }

  asio::awaitable<bool> Write(HttpAnswer& answer, Framing framing) {
    gone_ = false;
    bool begun = false;
    std::string filler;
    while (!closed_) {
      std::optional<HttpAnswer::Part> next = NextOf(answer, begun);
      if (!next.has_value()) co_return false;
      HttpAnswer::Part& part = *next;
      if (!part.filler.empty()) filler = std::string(part.filler);
      std::string text;
      if (part.head.has_value()) {
        begun = true;
        const bool whole = part.last;
        if (!whole && !framing.chunks) framing.keep_alive = false;
        text =
            HeadText(*part.head, framing, whole ? std::optional(part.bytes.size()) : std::nullopt);
        if (!framing.no_body) text += whole || !framing.chunks ? part.bytes : Chunk(part.bytes);
      } else if (!framing.no_body) {
        text = framing.chunks ? Chunk(part.bytes) : part.bytes;
        if (part.last && framing.chunks) text += "0\r\n\r\n";
      }
      if (text.empty() && !part.last) {
        const bool late = co_await WaitForMore();
        if (gone_ || closed_) co_return false;
        if (!late || !begun || framing.no_body) continue;
        text = framing.chunks ? Chunk(filler) : filler;
      }
      for (size_t at = 0; at < text.size(); at += kSliceBytes) {
        stream_.tcp().expires_after(Chrono(options_.write_timeout));
        const auto [error, bytes] = co_await asio::async_write(
            stream_, asio::buffer(text.data() + at, std::min(kSliceBytes, text.size() - at)),
            kAwait);
        if (error) co_return false;
      }
      if (part.last) co_return true;
    }
    co_return false;
  }

  // Until there may be more, the client has gone, or nothing came for a while, which is true then.
  asio::awaitable<bool> WaitForMore() {
    Watch();
    if (woken_.exchange(false) || gone_ || closed_) co_return false;
    timer_.expires_after(Chrono(options_.filler_period));
    const auto [error] = co_await timer_.async_wait(kAwait);
    woken_ = false;
    co_return !error;
  }

  void Wake() {
    if (woken_.exchange(true)) return;
    asio::post(stream_.get_executor(), [weak = weak_from_this()] {
      if (const auto self = weak.lock()) self->timer_.cancel();
    });
  }

  // Notices that the client closes the connection. What it sends ahead is left alone, and ends
  // this.
  void Watch() {
    if (std::exchange(watching_, true)) return;
    stream_.tcp().socket().async_wait(
        Tcp::socket::wait_read, [weak = weak_from_this()](const Error& error) {
          const auto self = weak.lock();
          if (self == nullptr) return;
          self->watching_ = false;
          if (!self->answering_) return;
          char byte = 0;
          Error peeked = error;
          if (!error)
            self->stream_.tcp().socket().receive(asio::buffer(&byte, 1), Tcp::socket::message_peek,
                                                 peeked);
          if (!peeked) return self->WatchWithTls();
          // The request that is answered now had come in between.
          if (peeked == asio::error::would_block) return self->Watch();
          self->Gone();
        });
  }
  void Gone() {
    gone_ = true;
    timer_.cancel();
  }

  // A client that leaves says so first, within TLS: unread bytes are no sign that it stays.
  void WatchWithTls() {
    if (!stream_.has_tls() || !answering_) return;
    pollfd polled = {.fd = stream_.tcp().socket().native_handle(), .events = POLLRDHUP};
    if (poll(&polled, 1, 0) != 0) return Gone();
    watching_ = true;
    look_.expires_after(std::chrono::milliseconds(100));
    look_.async_wait([weak = weak_from_this()](const Error& error) {
      const auto self = weak.lock();
      if (self == nullptr) return;
      self->watching_ = false;
      if (!error) self->WatchWithTls();
    });
  }

  const HttpServerOptions& options_;
  const HttpServer::Handler& handler_;
  const HttpServer::Refusal& refusal_;
  asio::thread_pool& handlers_;
  BodyBudget& bodies_;
  Members<Connection>& all_;
  HttpStream stream_;
  beast::flat_buffer buffer_;
  asio::steady_timer timer_;     // of what waits for a part
  asio::steady_timer deadline_;  // of a request
  asio::steady_timer look_;      // of WatchWithTls
  std::atomic<bool> woken_{false};
  bool answering_ = false;
  bool watching_ = false;
  bool gone_ = false;
  bool late_ = false;
  uint64_t deadlines_ = 0;
  bool closed_ = false;
  bool stopping_ = false;
};

}  // namespace skein::coordinator
