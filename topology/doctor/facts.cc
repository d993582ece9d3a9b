#include "topology/doctor/facts.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/json/json.h"
#include "base/status_macros.h"
#include "nlohmann/json.hpp"

namespace skein::topology {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(InterfaceFacts, name, address, prefix, up, loopback)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(CardFacts, name, ecc_errors, slowed_by,
                                                nvlinks_down, pcie_width, most_pcie_width,
                                                bytes_per_s, rdma)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(WayFacts, rank, latency_us, bytes_per_s)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(RankFacts, rank, host, boot, version, model,
                                                model_path, no_model, clock_s, shm_bytes,
                                                free_bytes, memory_bytes, memlock_bytes, open_files,
                                                cores, operations_per_s, interfaces, own_address,
                                                settings, port, port_taken, cards, no_gpus, ways,
                                                nccl_bytes_per_s, no_nccl, no_peers)

std::string FactsToJson(const std::vector<RankFacts>& ranks) {
  return nlohmann::json{{"ranks", ranks}}.dump(/*indent=*/-1, ' ', /*ensure_ascii=*/false,
                                               nlohmann::json::error_handler_t::replace);
}

absl::StatusOr<std::vector<RankFacts>> FactsFromJson(const std::string& json) {
  SKEIN_ASSIGN_OR_RETURN(const nlohmann::json facts, ParseJson(json));
  try {
    return facts.at("ranks").get<std::vector<RankFacts>>();
  } catch (const nlohmann::json::exception& error) {
    return absl::InvalidArgumentError(absl::StrCat("no facts of ranks: ", error.what()));
  }
}

}  // namespace skein::topology
