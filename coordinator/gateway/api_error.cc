#include "coordinator/gateway/api_error.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "coordinator/gateway/json_answer.h"

namespace skein::coordinator {
namespace {

using Json = nlohmann::ordered_json;

std::string_view TypeOf(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 413:
      return "request_too_large";
    case 429:
      return "rate_limit_error";
    case 503:
      return "overloaded_error";
    default:
      return status < 500 ? "invalid_request_error" : "api_error";
  }
}

// The service's name of a field, in this API.
std::string NameHere(std::string_view field, std::string_view input) {
  if (field.substr(0, 9) == "sampling.") field.remove_prefix(9);
  constexpr std::string_view kIds = "prompt_tokens.ids";
  if (field.substr(0, kIds.size()) == kIds) {
    return absl::StrCat(std::string(input), std::string(field.substr(kIds.size())));
  }
  if (field == "prompt_tokens" || field == "prompt") return std::string(input);
  if (field.substr(0, 8) == "stop_ids") {
    return absl::StrCat("stop_token_ids", std::string(field.substr(8)));
  }
  return std::string(field);
}

// What stands before the first colon, if it looks like a field.
std::string_view FieldOf(std::string_view message) {
  const size_t colon = message.find(": ");
  if (colon == std::string_view::npos) return "";
  const std::string_view field = message.substr(0, colon);
  const bool is_name = std::all_of(field.begin(), field.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '.' || c == '[' ||
           c == ']';
  });
  return is_name ? field : "";
}

}  // namespace

ApiError BadField(std::string_view param, std::string_view why) {
  return {.message = absl::StrCat(std::string(param), ": ", std::string(why)),
          .param = std::string(param)};
}

ApiError ErrorOf(const absl::Status& status, std::string_view input) {
  ApiError error = {.message = std::string(status.message())};
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
      if (const std::string_view field = FieldOf(error.message); !field.empty()) {
        error.param = NameHere(field, input);
        error.message = absl::StrCat(error.param, error.message.substr(field.size()));
      }
      break;
    case absl::StatusCode::kNotFound:
      error.status = 404;
      error.param = "model";
      error.code = "model_not_found";
      break;
    case absl::StatusCode::kUnimplemented:
      error.code = "not_supported";
      break;
    case absl::StatusCode::kResourceExhausted:
      error.status = 429;
      error.code = "queue_full";
      break;
    case absl::StatusCode::kFailedPrecondition:
      error.status = 422;
      error.code = "too_large";  // for any replica, however long it waits
      break;
    case absl::StatusCode::kAborted:
    case absl::StatusCode::kCancelled:
      error.status = 409;
      error.code = "ended_elsewhere";
      break;
    case absl::StatusCode::kUnavailable:
      error.status = 503;
      error.code = "unavailable";
      break;
    default:
      error.status = 500;
      error.code = "internal";
  }
  return error;
}

ApiError ErrorOfTemplate(const absl::Status& status, std::string_view input) {
  const bool missing = status.code() == absl::StatusCode::kFailedPrecondition;
  return {.status = missing ? 400 : 422,
          .message = std::string(status.message()),
          .param = std::string(input),
          .code = missing ? "no_chat_template" : "template_refused"};
}

Json ToJson(const ApiError& error) {
  const auto or_null = [](const std::string& text) { return text.empty() ? Json() : Json(text); };
  return {{"type", "error"},
          {"error",
           {{"message", error.message},
            {"type", std::string(TypeOf(error.status))},
            {"param", or_null(error.param)},
            {"code", or_null(error.code)}}}};
}

std::unique_ptr<HttpAnswer> ToAnswer(const ApiError& error) {
  HttpHead head = {.status = error.status};
  if (error.status == 401) head.headers.emplace_back("WWW-Authenticate", "Bearer");
  if (error.status == 429 || error.status == 503) {
    head.headers.emplace_back("Retry-After", absl::StrCat(error.retry_after_s));
  }
  return JsonAnswer(ToJson(error), std::move(head));
}

}  // namespace skein::coordinator
