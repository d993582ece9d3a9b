// A client that sends bytes as it is told and reads what comes, for tests of HTTP on the wire.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/host_port.h"
#include "gtest/gtest.h"

namespace skein::coordinator {

class HttpTestClient {
 public:
  struct Response {
    int status = 0;
    std::map<std::string, std::string> headers;  // names in lower case
    std::string body;                            // of chunks: joined
  };

  // `receive_buffer`: bytes that the kernel keeps of what was not read; 0: as many as it likes.
  explicit HttpTestClient(const std::string& address, int receive_buffer = 0) {
    const HostPort to = *ParseHostPort(address);
    fd_ = socket(AF_INET, SOCK_STREAM, 0);
    if (receive_buffer > 0) {
      setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof(receive_buffer));
    }
    sockaddr_in in = {};
    in.sin_family = AF_INET;
    in.sin_port = htons(static_cast<uint16_t>(to.port));
    inet_pton(AF_INET, to.host.c_str(), &in.sin_addr);
    EXPECT_EQ(connect(fd_, reinterpret_cast<sockaddr*>(&in), sizeof(in)), 0);
  }
  ~HttpTestClient() { Close(); }
  HttpTestClient(const HttpTestClient&) = delete;

  void Close() {
    if (fd_ >= 0) close(fd_);
    fd_ = -1;
  }
  void Send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) return;  // refused in the middle: the answer tells
      bytes.remove_prefix(static_cast<size_t>(sent));
    }
  }
  void Get(const std::string& path) { Send(absl::StrCat("GET ", path, " HTTP/1.1\r\n\r\n")); }
  void Post(const std::string& path, const std::string& body) {
    Send(absl::StrCat("POST ", path, " HTTP/1.1\r\nContent-Type: application/json\r\n",
                      "Content-Length: ", body.size(), "\r\n\r\n", body));
  }

  // Reads until `until` has come, and returns all up to its end; what came before, where nothing
  // more comes.
  std::string ReadUntil(std::string_view until, absl::Duration patience = absl::Seconds(20)) {
    const absl::Time deadline = absl::Now() + patience;
    size_t found;
    while ((found = buffer_.find(until)) == std::string::npos) {
      if (!ReadSome(deadline - absl::Now())) return std::exchange(buffer_, "");
    }
    const std::string all = buffer_.substr(0, found + until.size());
    buffer_.erase(0, all.size());
    return all;
  }
  std::string ReadBytes(size_t count) {
    while (buffer_.size() < count && ReadSome(absl::Seconds(20))) {
    }
    const std::string bytes = buffer_.substr(0, count);
    buffer_.erase(0, bytes.size());
    return bytes;
  }
  // False: the other end is closed, or nothing came for so long.
  bool ReadSome(absl::Duration patience) {
    pollfd poll_fd = {.fd = fd_, .events = POLLIN, .revents = 0};
    if (poll(&poll_fd, 1, static_cast<int>(absl::ToInt64Milliseconds(patience))) <= 0) return false;
    char bytes[4096];
    const ssize_t got = recv(fd_, bytes, sizeof(bytes), 0);
    if (got <= 0) return false;
    buffer_.append(bytes, static_cast<size_t>(got));
    return true;
  }
  // Whether the other end closes the connection, with nothing left to read.
  bool IsClosed() {
    pollfd poll_fd = {.fd = fd_, .events = POLLIN, .revents = 0};
    char byte;
    return buffer_.empty() && poll(&poll_fd, 1, 20'000) == 1 && recv(fd_, &byte, 1, 0) <= 0;
  }

  Response ReadHead() {
    Response response;
    std::string head = ReadUntil("\r\n\r\n");
    size_t line_end = head.find("\r\n");
    if (!head.starts_with("HTTP/1.1 ") || line_end == std::string::npos) return response;
    response.status = std::stoi(head.substr(9, 3));
    while (true) {
      const size_t begin = line_end + 2;
      line_end = head.find("\r\n", begin);
      const size_t colon = head.find(": ", begin);
      if (line_end == begin || colon == std::string::npos || line_end == std::string::npos) break;
      response.headers[absl::AsciiStrToLower(head.substr(begin, colon - begin))] =
          head.substr(colon + 2, line_end - colon - 2);
    }
    return response;
  }
  // One chunk's bytes; "" behind the last.
  std::string ReadChunk() {
    const size_t size = std::stoul("0" + ReadUntil("\r\n"), nullptr, 16);
    const std::string bytes = ReadBytes(size + 2);
    return bytes.substr(0, size);
  }
  Response Read() {
    Response response = ReadHead();
    if (response.headers.count("content-length") > 0) {
      response.body = ReadBytes(std::stoul(response.headers["content-length"]));
    } else if (response.headers["transfer-encoding"] == "chunked") {
      for (std::string chunk; !(chunk = ReadChunk()).empty();) response.body += chunk;
    } else {
      while (ReadSome(absl::Seconds(20))) {
      }
      response.body = std::exchange(buffer_, "");
    }
    return response;
  }

 private:
  int fd_ = -1;
  std::string buffer_;
};

}  // namespace skein::coordinator
