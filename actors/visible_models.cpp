#include "actors/visible_models.h"

#include <algorithm>

#include "scheduler/shares/model_rights.h"

namespace troupe::actors {
namespace {

template <class Model>
std::vector<Model> that_may_be_used(std::vector<Model> models, const scheduler::Tenant& tenant) {
  std::erase_if(models, [&](const Model& model) { return !scheduler::may_use(tenant, model.name, model.aliases); });
  return models;
}

bool is_called(const ModelHealth& model, const std::string& name) {
  return model.name == name || std::ranges::find(model.aliases, name) != model.aliases.end();
}

}  // namespace

std::vector<ModelHealth> visible_health(const Gateway& gateway, const scheduler::Tenant& tenant) {
  return that_may_be_used(gateway.health(), tenant);
}

std::vector<ModelDescription> visible_models(const Gateway& gateway, const scheduler::Tenant& tenant) {
  return that_may_be_used(gateway.models(), tenant);
}

std::shared_ptr<const ServedModel> visible_model(const Gateway& gateway, const scheduler::Tenant& tenant,
                                                 const std::string& name) {
  if (scheduler::may_use_all(tenant)) return gateway.model(name);
  for (const ModelHealth& each : visible_health(gateway, tenant))
    if (!each.replacing && !each.retiring && (name.empty() || is_called(each, name))) return gateway.model(each.name);
  return nullptr;
}

}  // namespace troupe::actors
