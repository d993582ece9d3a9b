// HTTP/1.1 over TCP, or over TLS: reads requests within bounds and lets a handler answer each of
// them, at once or in parts as they come. Connections are kept alive, and requests may be sent
// ahead; a connection's are answered one after the other.
//
// Nothing waits for a client that reads slowly: a part is asked for when the one before is written.
// A client that goes away is noticed while its answer is awaited, too, unless it has sent more
// ahead.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "coordinator/gateway/tls_context.h"

namespace skein::coordinator {

using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

struct HttpRequest {
  std::string method;  // "POST"
  std::string path;    // "/v1/models", as it was sent, without the query
  std::string query;   // behind the question mark
  HttpHeaders headers;
  std::string body;
  std::string client;  // ADDRESS:PORT

  // The first header of this name, in any case; "" where there is none.
  std::string_view Header(std::string_view name) const;
};

// Content-Length, Transfer-Encoding and Connection are the server's to add.
struct HttpHead {
  int status = 200;
  std::string content_type = "application/json";
  HttpHeaders headers;
};

// What a request is answered with. Next is called by one thread at a time. Destroyed before its
// last part, the client has gone.
class HttpAnswer {
 public:
  struct Part {
    std::optional<HttpHead> head;  // of the first part that is not empty
    std::string bytes;
    bool last = false;
    // Written where no other part comes for a while, once the head is out; "": nothing is.
    std::string_view filler = {};
    // Tokens that were read and made for the answer since the part before. The server passes them
    // over: who counts them stands between it and the answer.
    int64_t prompt_tokens = 0;
    int64_t answer_tokens = 0;
  };
  virtual ~HttpAnswer() = default;
  // Nothing yet: neither a head nor bytes, and not the last part. Asked again after a wake.
  virtual Part Next() = 0;
  // Nobody takes what comes further: nothing new is begun.
  virtual void Leave() {}
  // It was refused by who stands before it: what would go on without a client ends.
  virtual void Discard() {}
};

// What a client hears of an exception.
inline constexpr char kInternalError[] = "an error inside of the server; its log tells more";

// An answer that is there.
class WholeAnswer final : public HttpAnswer {
 public:
  WholeAnswer(HttpHead head, std::string body) : part_{std::move(head), std::move(body), true} {}
  Part Next() override { return std::move(part_); }

 private:
  Part part_;
};

struct HttpServerOptions {
  std::string listen = "127.0.0.1:8000";  // HOST:PORT; port 0 takes a free one
  std::optional<TlsFiles> tls;            // none: no TLS
  int threads = 2;                        // that read requests and write answers
  int handler_threads = 2;                // that call the handler
  int64_t max_connections = 4096;         // more are refused with 503
  uint32_t header_bytes = 32 << 10;       // of one request, all together
  uint64_t body_bytes = uint64_t{16} << 20;
  // Of all bodies above 64 KiB that are read or handled at once; more are refused with 503. One
  // whose length is not told counts as one of body_bytes.
  int64_t all_bodies_bytes = int64_t{256} << 20;
  absl::Duration handshake_timeout = absl::Seconds(10);  // of TLS
  absl::Duration idle_timeout = absl::Seconds(75);       // for a whole header to come
  absl::Duration body_timeout = absl::Seconds(60);       // for a whole body
  absl::Duration write_timeout = absl::Seconds(60);      // of one part
  absl::Duration filler_period = absl::Seconds(15);
};

class HttpServer {
 public:
  // Any thread may call it, also when the answer is gone.
  using Wake = std::function<void()>;
  // Called by several threads, which do nothing else. What it throws is answered with 500.
  using Handler = std::function<std::unique_ptr<HttpAnswer>(const HttpRequest&, Wake)>;
  // What the server itself refuses is said in the handler's form: the status and why.
  using Refusal = std::function<std::unique_ptr<HttpAnswer>(int status, std::string_view why)>;

  // Listens. InvalidArgument: no such address; Unavailable: it is taken, or not this host's; or
  // LoadTlsContext's errors.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(const HttpServerOptions& options,
                                                           Handler handler, Refusal refusal);
  ~HttpServer();  // Shutdown(0)

  const std::string& address() const;  // HOST:PORT
  int64_t connections() const;         // that are open
  // Reads the files of TLS again, for connections to come. After an error all is as before. Any
  // thread; without TLS it does nothing.
  absl::Status ReloadTls();
  // Takes no more connections and requests; answers under way may go on for `grace`.
  void Shutdown(absl::Duration grace);

 private:
  class Impl;
  explicit HttpServer(std::unique_ptr<Impl> impl);
  const std::unique_ptr<Impl> impl_;
};

}  // namespace skein::coordinator
