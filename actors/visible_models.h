// What a tenant sees of the models: those that its rule lets it use (scheduler/shares/model_rights.h). The others do
// not exist for it, in lists and as names.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "actors/gateway.h"
#include "scheduler/shares/tenant.h"

namespace troupe::actors {

// As Gateway::health() and models(), in their order.
[[nodiscard]] std::vector<ModelHealth> visible_health(const Gateway& gateway, const scheduler::Tenant& tenant);
[[nodiscard]] std::vector<ModelDescription> visible_models(const Gateway& gateway, const scheduler::Tenant& tenant);

// As Gateway::model(). Without a name it is the first model that the tenant may use, the default one before others, as
// of its requests.
[[nodiscard]] std::shared_ptr<const ServedModel> visible_model(const Gateway& gateway, const scheduler::Tenant& tenant,
                                                               const std::string& name = {});

}  // namespace troupe::actors
