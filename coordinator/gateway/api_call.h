// One call of the APIs, beside its body: who asked, and what its answer is called.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/time/time.h"
#include "coordinator/gateway/http_server.h"
#include "coordinator/service/kept_answer.h"
#include "coordinator/service/response_id.h"

namespace skein::coordinator {

// What an answer is called, the same however often it is told.
struct AnswerName {
  std::string random = NewResponseId("");  // behind the prefix of each kind of object
  absl::Time created;
};

struct ApiCall {
  HttpServer::Wake wake;
  AnswerName name;
  std::string_view route;                    // "/v1/completions"
  std::string_view body;                     // as it was sent
  std::string key;                           // the API key's name; "": none is asked for
  std::shared_ptr<const ServedModel> model;  // that the body names: answers keep it
  KeptAnswer::Count count;                   // of tokens that are made for it, where it is kept
  // Of a client that comes back: its answer, and the last event that it has. `body` and `name` are
  // the first call's.
  std::shared_ptr<KeptAnswer> resumed;
  int64_t last_event = 0;
};

}  // namespace skein::coordinator
