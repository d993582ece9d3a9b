// A connection's bytes: TCP's, or TLS over it. Of http_server.cc alone, as http_connection.h.
#pragma once

#include <openssl/ssl.h>

#include <new>
#include <optional>
#include <utility>

#include "boost/asio/ip/tcp.hpp"
#include "boost/asio/ssl/stream.hpp"
#include "boost/beast/core/tcp_stream.hpp"
#include "coordinator/gateway/tls_context.h"

namespace skein::coordinator {

namespace asio = boost::asio;
namespace beast = boost::beast;
using Tcp = asio::ip::tcp;
using Error = boost::system::error_code;

// A stream as Asio's and Beast's operations take it. Its times are limits of what they do together:
// one that comes after expires_after keeps to it.
class HttpStream {
 public:
  using executor_type = beast::tcp_stream::executor_type;

  // No context: no TLS.
  HttpStream(Tcp::socket socket, const TlsContext& tls) : tcp_(std::move(socket)) {
    if (tls == nullptr) return;
    SSL* const of_connection = SSL_new(tls.get());
    if (of_connection == nullptr) throw std::bad_alloc();
    tls_.emplace(tcp_, of_connection);
  }

  executor_type get_executor() { return tcp_.get_executor(); }
  beast::tcp_stream& tcp() { return tcp_; }
  bool has_tls() const { return tls_.has_value(); }

  // Where there is TLS.
  template <typename Token>
  auto async_handshake(Token&& token) {
    return tls_->async_handshake(asio::ssl::stream_base::server, std::forward<Token>(token));
  }
  template <typename Token>
  auto async_shutdown(Token&& token) {
    return tls_->async_shutdown(std::forward<Token>(token));
  }

  template <typename Buffers, typename Token>
  auto async_read_some(const Buffers& buffers, Token&& token) {
    if (tls_.has_value()) return tls_->async_read_some(buffers, std::forward<Token>(token));
    return tcp_.async_read_some(buffers, std::forward<Token>(token));
  }
  template <typename Buffers, typename Token>
  auto async_write_some(const Buffers& buffers, Token&& token) {
    if (tls_.has_value()) return tls_->async_write_some(buffers, std::forward<Token>(token));
    return tcp_.async_write_some(buffers, std::forward<Token>(token));
  }

 private:
  beast::tcp_stream tcp_;
  std::optional<asio::ssl::stream<beast::tcp_stream&>> tls_;
};

}  // namespace skein::coordinator
