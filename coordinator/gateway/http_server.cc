#include "coordinator/gateway/http_server.h"

#include <chrono>
#include <future>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/host_port.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "coordinator/gateway/body_budget.h"
#include "coordinator/gateway/http_connection.h"

namespace skein::coordinator {
namespace {

absl::StatusOr<Tcp::endpoint> EndpointOf(const std::string& listen, asio::io_context& io) {
  SKEIN_ASSIGN_OR_RETURN(const HostPort address, ParseHostPort(listen));
  Tcp::resolver resolver(io);
  Error error;
  // Brackets are of the text, not of the address.
  const bool bare = address.host.front() != '[';
  const std::string host = bare ? address.host : address.host.substr(1, address.host.size() - 2);
  const auto found =
      resolver.resolve(host, std::to_string(address.port), Tcp::resolver::passive, error);
  if (error || found.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot listen on ", listen, ": ", error.message()));
  }
  return found.begin()->endpoint();
}

}  // namespace

std::string_view HttpRequest::Header(std::string_view name) const {
  for (const auto& [key, value] : headers) {
    if (absl::EqualsIgnoreCase(key, absl::string_view(name.data(), name.size()))) return value;
  }
  return "";
}

class HttpServer::Impl {
 public:
  Impl(const HttpServerOptions& options, Handler handler, Refusal refusal)
      : options_(options),
        handler_(std::move(handler)),
        refusal_(std::move(refusal)),
        handlers_(static_cast<size_t>(options.handler_threads)),
        bodies_(options.all_bodies_bytes),
        io_(options.threads),
        acceptor_(asio::make_strand(io_)) {}

  absl::Status Start() {
    SKEIN_RETURN_IF_ERROR(ReloadTls());
    SKEIN_ASSIGN_OR_RETURN(const Tcp::endpoint endpoint, EndpointOf(options_.listen, io_));
    Error error;
    const auto said = [&](const char* what) {
      return absl::UnavailableError(
          absl::StrCat("cannot ", what, " ", options_.listen, ": ", error.message()));
    };
    acceptor_.open(endpoint.protocol(), error);
    if (error) return said("open a socket for");
    acceptor_.set_option(Tcp::acceptor::reuse_address(true), error);
    acceptor_.bind(endpoint, error);
    if (error) return said("listen on");
    acceptor_.listen(asio::socket_base::max_listen_connections, error);
    if (error) return said("listen on");
    const Tcp::endpoint bound = acceptor_.local_endpoint(error);
    if (error) return said("tell the port of");
    SKEIN_ASSIGN_OR_RETURN(HostPort address, ParseHostPort(options_.listen));
    address.port = bound.port();
    address_ = address.ToString();
    asio::co_spawn(acceptor_.get_executor(), Accept(), asio::detached);
    for (int i = 0; i < options_.threads; ++i) {
      threads_.emplace_back([this] { io_.run(); });
    }
    return absl::OkStatus();
  }

  absl::Status ReloadTls() {
    if (!options_.tls.has_value()) return absl::OkStatus();
    SKEIN_ASSIGN_OR_RETURN(TlsContext loaded, LoadTlsContext(*options_.tls, absl::Now()));
    MutexLock lock(&mutex_);
    tls_ = std::move(loaded);
    return absl::OkStatus();
  }

  void Shutdown(absl::Duration grace) {
    if (threads_.empty()) return;
    std::promise<void> closed;  // from then on no connection is added
    asio::post(acceptor_.get_executor(), [&] {
      Error ignored;
      acceptor_.close(ignored);
      closed.set_value();
    });
    closed.get_future().wait();
    connections_.ForEach([](Connection& connection) { connection.Stop(/*now=*/false); });
    const auto deadline = std::chrono::steady_clock::now() + Chrono(grace);
    while (connections_.size() > 0 && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    connections_.ForEach([](Connection& connection) { connection.Stop(/*now=*/true); });
    work_.reset();
    // Each connection ends by itself now; none waits for its client.
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
    handlers_.join();
  }

  const std::string& address() const { return address_; }
  int64_t connections() const { return connections_.size(); }

 private:
  asio::awaitable<void> Accept() {
    while (acceptor_.is_open()) {
      auto [error, socket] = co_await acceptor_.async_accept(asio::make_strand(io_), kAwait);
      if (error == asio::error::operation_aborted || !acceptor_.is_open()) break;
      if (error) {  // as where no descriptors are left: others may end
        asio::steady_timer pause(acceptor_.get_executor(), std::chrono::milliseconds(50));
        co_await pause.async_wait(kAwait);
        continue;
      }
      std::string refused;
      if (connections_.size() >= options_.max_connections) {
        refused = absl::StrCat("there are ", options_.max_connections, " connections already");
      }
      auto executor = socket.get_executor();
      const auto connection = std::make_shared<Connection>(
          std::move(socket), tls(), options_, handler_, refusal_, handlers_, bodies_, connections_);
      connections_.Add(connection.get());
      asio::co_spawn(executor, Connection::Run(connection, std::move(refused)), asio::detached);
    }
  }

  TlsContext tls() {
    MutexLock lock(&mutex_);
    return tls_;
  }

  const HttpServerOptions options_;
  Mutex mutex_;
  TlsContext tls_ ABSL_GUARDED_BY(mutex_);  // of connections to come; null: they have no TLS
  const Handler handler_;
  const Refusal refusal_;
  std::string address_;
  Members<Connection> connections_;  // goes after the context, which holds the last of them
  asio::thread_pool handlers_;
  BodyBudget bodies_;  // outlives the connections
  asio::io_context io_;
  std::optional<asio::executor_work_guard<asio::io_context::executor_type>> work_ =
      asio::make_work_guard(io_);
  Tcp::acceptor acceptor_;
  std::vector<std::thread> threads_;
};

HttpServer::HttpServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
HttpServer::~HttpServer() { Shutdown(absl::ZeroDuration()); }

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(const HttpServerOptions& options,
                                                              Handler handler, Refusal refusal) {
  auto impl = std::make_unique<Impl>(options, std::move(handler), std::move(refusal));
  SKEIN_RETURN_IF_ERROR(impl->Start());
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(impl)));
}

const std::string& HttpServer::address() const { return impl_->address(); }
int64_t HttpServer::connections() const { return impl_->connections(); }
absl::Status HttpServer::ReloadTls() { return impl_->ReloadTls(); }
void HttpServer::Shutdown(absl::Duration grace) { impl_->Shutdown(grace); }

}  // namespace skein::coordinator
