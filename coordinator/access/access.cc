#include "coordinator/access/access.h"

#include "base/status_macros.h"

namespace skein::coordinator {

absl::StatusOr<std::unique_ptr<Access>> Access::Open(const Options& options, const Clock* clock) {
  SKEIN_ASSIGN_OR_RETURN(std::unique_ptr<ApiKeys> keys, ApiKeys::Load(options.keys_file));
  std::unique_ptr<Access> access(new Access(std::move(keys), clock));
  if (!options.usage_db.empty()) {
    SKEIN_ASSIGN_OR_RETURN(access->file_, KeyUsageFile::Open(options.usage_db, &access->usage_));
  }
  return access;
}

Access::Verdict Access::Admit(std::shared_ptr<const serving::ApiKey> key) {
  std::optional<Excess> excess = usage_.Begin(key->name, key->limits);
  if (excess.has_value()) return {nullptr, std::move(excess)};
  return {std::make_unique<Admission>(std::move(key), &usage_), std::nullopt};
}

}  // namespace skein::coordinator
