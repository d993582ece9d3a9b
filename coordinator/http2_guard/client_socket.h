// A client's connection as bytes, over TLS or plain. Nothing waits.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "base/tls/mutual_tls.h"
#include "base/tls/server_context.h"

typedef struct ssl_st SSL;  // OpenSSL's

namespace skein::coordinator {

// What reading or writing came to.
struct Moved {
  enum class Then {
    kOn,     // there may be more at once
    kWait,   // the system says when
    kEnd,    // the other end says no more
    kBroken  // neither direction goes on
  };
  size_t bytes = 0;
  Then then = Then::kOn;
};

Moved ReadFrom(int fd, char* to, size_t size);
Moved WriteTo(int fd, std::string_view bytes);

// As NewMutualServerContext, for clients that say that they will speak HTTP/2 (ALPN).
absl::StatusOr<TlsContext> NewHttp2Context(const MutualTls& tls);

class ClientSocket {
 public:
  // Owns the descriptor. `tls`: null for none.
  ClientSocket(int fd, const TlsContext& tls);
  ~ClientSocket();
  ClientSocket(const ClientSocket&) = delete;
  ClientSocket& operator=(const ClientSocket&) = delete;

  int fd() const { return fd_; }
  bool in_handshake() const { return in_handshake_; }
  // A step of TLS' handshake; kOn: it is done. kBroken: `refusal` says why, "" where the client has
  // just gone.
  Moved::Then Handshake();
  const std::string& refusal() const { return refusal_; }
  bool wants_to_write() const;  // before the handshake goes on
  // Before more can be read: TLS has something to say first.
  bool read_waits_to_write() const { return read_waits_to_write_; }

  // Both want the handshake to be done, and may be called again with the same bytes where they
  // were not all written.
  Moved Read(char* to, size_t size);
  Moved Write(std::string_view bytes);
  // Nothing is written behind it.
  void SayNoMore();

 private:
  const int fd_;
  const std::unique_ptr<SSL, void (*)(SSL*)> ssl_;
  bool in_handshake_;
  bool read_waits_to_write_ = false;
  bool has_said_all_ = false;
  std::string refusal_;
};

}  // namespace skein::coordinator
