// Requests as handlers get them, and answers as clients do.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "boost/beast/http/message.hpp"
#include "boost/beast/http/status.hpp"
#include "boost/beast/http/string_body.hpp"
#include "coordinator/gateway/http_server.h"

namespace skein::coordinator {

namespace http = boost::beast::http;

inline std::string ReasonOf(int status) {
  const auto reason = http::obsolete_reason(static_cast<http::status>(status));
  return std::string(reason.data(), reason.size());
}

inline HttpRequest Copy(http::request<http::string_body>& from) {
  HttpRequest request;
  request.method = std::string(from.method_string());
  const std::string target(from.target());
  const size_t mark = target.find('?');
  request.path = target.substr(0, mark);
  if (mark != std::string::npos) request.query = target.substr(mark + 1);
  for (const auto& field : from) {
    request.headers.emplace_back(std::string(field.name_string()), std::string(field.value()));
  }
  request.body = std::move(from.body());
  return request;
}

// What stands around an answer's bytes.
struct Framing {
  bool keep_alive = false;
  bool chunks = true;    // HTTP/1.0 has none: the end of the connection ends the answer
  bool no_body = false;  // HEAD
};

inline std::string HeadText(const HttpHead& head, const Framing& framing,
                            std::optional<size_t> length) {
  std::string text = absl::StrCat("HTTP/1.1 ", head.status, " ", ReasonOf(head.status),
                                  "\r\nContent-Type: ", head.content_type, "\r\n");
  for (const auto& [name, value] : head.headers) absl::StrAppend(&text, name, ": ", value, "\r\n");
  if (length.has_value()) {
    absl::StrAppend(&text, "Content-Length: ", *length, "\r\n");
  } else if (framing.chunks) {
    absl::StrAppend(&text, "Transfer-Encoding: chunked\r\n");
  }
  absl::StrAppend(&text, "Connection: ", framing.keep_alive ? "keep-alive" : "close", "\r\n\r\n");
  return text;
}

inline std::string Chunk(std::string_view bytes) {
  if (bytes.empty()) return "";
  return absl::StrCat(absl::Hex(bytes.size()), "\r\n", std::string(bytes), "\r\n");
}

}  // namespace skein::coordinator
