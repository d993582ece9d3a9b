#include "client/serve/open_mpi_settings.h"

namespace skein::client {

std::vector<std::pair<std::string, std::string>> OpenMpiSettings(bool root) {
  // Why these values: scripts/env.sh.
  std::vector<std::pair<std::string, std::string>> settings = {
      {"OMPI_MCA_rmaps_base_oversubscribe", "1"},
      {"OMPI_MCA_hwloc_base_binding_policy", "none"},
      {"OMPI_MCA_oob_tcp_keepalive_time", "1"},
      {"OMPI_MCA_oob_tcp_keepalive_intvl", "1"},
      {"OMPI_MCA_oob_tcp_keepalive_probes", "2"},
      {"PRTE_MCA_oob_tcp_keepalive_time", "1"},
      {"PRTE_MCA_oob_tcp_keepalive_intvl", "1"},
      {"PRTE_MCA_oob_tcp_keepalive_probes", "3"},
      {"PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe"},
      {"PRTE_MCA_hwloc_default_binding_policy", "none"},
  };
  if (!root) return settings;
  for (const char* variable : {"OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM",
                               "PRTE_ALLOW_RUN_AS_ROOT", "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM"}) {
    settings.emplace_back(variable, "1");
  }
  return settings;
}

}  // namespace skein::client
