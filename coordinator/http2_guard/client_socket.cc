#include "coordinator/http2_guard/client_socket.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace skein::coordinator {
namespace {

constexpr std::string_view kProtocol = "h2";
constexpr size_t kFullRecord = size_t{16} << 10;

Moved::Then ThenOfErrno() {
  return errno == EAGAIN || errno == EWOULDBLOCK ? Moved::Then::kWait : Moved::Then::kBroken;
}

// Clients say that they will speak HTTP/2, or are refused.
int ChooseProtocol(SSL* /*ssl*/, const unsigned char** out, unsigned char* out_size,
                   const unsigned char* offered, unsigned int size, void* /*data*/) {
  for (unsigned int at = 0; at < size; at += 1 + offered[at]) {
    const std::string_view name(reinterpret_cast<const char*>(offered + at + 1), offered[at]);
    if (name != kProtocol) continue;
    *out = offered + at + 1;
    *out_size = offered[at];
    return SSL_TLSEXT_ERR_OK;
  }
  return SSL_TLSEXT_ERR_ALERT_FATAL;
}

SSL* NewSsl(const TlsContext& context, int fd) {
  if (context == nullptr) return nullptr;
  SSL* const ssl = SSL_new(context.get());
  if (ssl == nullptr) return nullptr;
  SSL_set_mode(ssl, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                        SSL_MODE_RELEASE_BUFFERS);
  // Records that say nothing, one behind the other, are read one a turn.
  SSL_clear_mode(ssl, SSL_MODE_AUTO_RETRY);
  SSL_set_accept_state(ssl);
  SSL_set_fd(ssl, fd);
  return ssl;
}

int SslSize(size_t size) { return static_cast<int>(std::min<size_t>(size, INT_MAX)); }

}  // namespace

Moved ReadFrom(int fd, char* to, size_t size) {
  ssize_t got = 0;
  do {
    got = recv(fd, to, size, 0);
  } while (got < 0 && errno == EINTR);
  if (got < 0) return {0, ThenOfErrno()};
  if (got == 0) return {0, Moved::Then::kEnd};
  const auto bytes = static_cast<size_t>(got);
  return {bytes, bytes < size ? Moved::Then::kWait : Moved::Then::kOn};
}

Moved WriteTo(int fd, std::string_view bytes) {
  size_t written = 0;
  while (written < bytes.size()) {
    const ssize_t part = send(fd, bytes.data() + written, bytes.size() - written, MSG_NOSIGNAL);
    if (part < 0 && errno == EINTR) continue;
    if (part < 0) return {written, ThenOfErrno()};
    written += static_cast<size_t>(part);
  }
  return {written, Moved::Then::kOn};
}

absl::StatusOr<TlsContext> NewHttp2Context(const MutualTls& tls) {
  SKEIN_ASSIGN_OR_RETURN(TlsContext context, NewMutualServerContext(tls));
  SSL_CTX_set_alpn_select_cb(context.get(), ChooseProtocol, nullptr);
  return context;
}

ClientSocket::ClientSocket(int fd, const TlsContext& tls)
    : fd_(fd), ssl_(NewSsl(tls, fd), SSL_free), in_handshake_(tls != nullptr) {}

ClientSocket::~ClientSocket() {
  SayNoMore();
  close(fd_);
}

void ClientSocket::SayNoMore() {
  if (std::exchange(has_said_all_, true)) return;
  if (ssl_ != nullptr && !in_handshake_) {
    ERR_clear_error();
    SSL_shutdown(ssl_.get());  // says that nothing was cut off, where there is room for it
  }
  shutdown(fd_, SHUT_WR);
}

Moved::Then ClientSocket::Handshake() {
  ERR_clear_error();
  if (ssl_ == nullptr) return Moved::Then::kBroken;  // no memory
  const int result = SSL_do_handshake(ssl_.get());
  if (result == 1) {
    const unsigned char* protocol = nullptr;
    unsigned int size = 0;
    SSL_get0_alpn_selected(ssl_.get(), &protocol, &size);
    if (size == 0) {
      refusal_ = "no application protocol";
      return Moved::Then::kBroken;
    }
    in_handshake_ = false;
    return Moved::Then::kOn;
  }
  const int error = SSL_get_error(ssl_.get(), result);
  if (error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE) return Moved::Then::kWait;
  const char* const reason = ERR_reason_error_string(ERR_peek_error());
  if (error == SSL_ERROR_SSL && reason != nullptr &&
      ERR_GET_REASON(ERR_peek_error()) != SSL_R_UNEXPECTED_EOF_WHILE_READING) {
    const long verified = SSL_get_verify_result(ssl_.get());
    refusal_ = verified == X509_V_OK
                   ? reason
                   : absl::StrCat(reason, ": ", X509_verify_cert_error_string(verified));
  }
  ERR_clear_error();
  return Moved::Then::kBroken;
}

bool ClientSocket::wants_to_write() const { return ssl_ != nullptr && SSL_want_write(ssl_.get()); }

Moved ClientSocket::Read(char* to, size_t size) {
  if (ssl_ == nullptr) return ReadFrom(fd_, to, size);
  ERR_clear_error();
  const int got = SSL_read(ssl_.get(), to, SslSize(size));
  const auto bytes = static_cast<size_t>(std::max(got, 0));
  read_waits_to_write_ = false;
  // Behind a record that is not full nothing is there, mostly.
  if (got > 0) return {bytes, bytes < kFullRecord ? Moved::Then::kWait : Moved::Then::kOn};
  const int error = SSL_get_error(ssl_.get(), got);
  read_waits_to_write_ = error == SSL_ERROR_WANT_WRITE;
  ERR_clear_error();
  if (error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE) return {0, Moved::Then::kWait};
  return {0, error == SSL_ERROR_ZERO_RETURN ? Moved::Then::kEnd : Moved::Then::kBroken};
}

Moved ClientSocket::Write(std::string_view bytes) {
  if (ssl_ == nullptr) return WriteTo(fd_, bytes);
  size_t written = 0;
  while (written < bytes.size()) {
    ERR_clear_error();
    const int part = SSL_write(ssl_.get(), bytes.data() + written, SslSize(bytes.size() - written));
    if (part <= 0) {
      const int error = SSL_get_error(ssl_.get(), part);
      ERR_clear_error();
      const bool wait = error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE;
      return {written, wait ? Moved::Then::kWait : Moved::Then::kBroken};
    }
    written += static_cast<size_t>(part);
  }
  return {written, Moved::Then::kOn};
}

}  // namespace skein::coordinator
