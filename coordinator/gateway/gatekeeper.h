// Who is let in, before a body is parsed: by the host that a request is sent to, by its API key,
// and by what the key has used.
#pragma once

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/host_port.h"
#include "coordinator/access/access.h"
#include "coordinator/gateway/api_error.h"
#include "coordinator/gateway/http_server.h"
#include "coordinator/service/model_registry.h"
#include "coordinator/service/served_model.h"
#include "serving/keys/key_file.h"

namespace skein::coordinator {

// Where clients come back for answers.
inline constexpr std::string_view kAnswersPath = "/v1/answers/";

// Thread-safe.
class Gatekeeper {
 public:
  struct Options {
    Access* access = nullptr;  // outlives it; none: no key is asked for
    // Names that browsers may know this server by, besides its own.
    std::vector<std::string> allowed_hosts;
  };
  // `listen`: where the server listens. On loopback a request's Host must be this host or one of
  // the allowed ones: a page of another site can make its own name lead here (DNS rebinding), and
  // its browser names it. Elsewhere Host is looked at where names are allowed. A request without
  // one comes from no browser.
  Gatekeeper(const HostPort& listen, const Options& options);

  struct Verdict {
    std::optional<ApiError> refusal;
    std::shared_ptr<Admission> admission;        // none: nothing is counted
    std::shared_ptr<const serving::ApiKey> key;  // none: none was asked for, or found
  };
  // `models`: what is served here. A key that may use none of them is refused. Who comes back for
  // an answer was counted when it was asked for.
  Verdict Judge(const HttpRequest& request, const std::vector<HostedModel>& models) const;

  // Whether the key may use the model, by whichever of its names; null may.
  static bool Allows(const serving::ApiKey* key, const ServedModel& model);
  // `what`: "the model 'bard'".
  static ApiError NotAllowed(const std::string& what);

 private:
  bool AllowsHost(std::string_view host) const;

  Access* const access_;
  std::set<std::string> hosts_;  // in lower case; empty: any
};

// The answer, whose tokens are counted. A prompt that goes over the limit ends it, and is refused.
// No admission: the answer itself.
std::unique_ptr<HttpAnswer> Metered(std::unique_ptr<HttpAnswer> answer,
                                    std::shared_ptr<Admission> admission);

}  // namespace skein::coordinator
