#include "actors/serving/served_model.h"

#include <utility>

#include "actors/serving/model_cache.h"
#include "engine/model/hidden_states.h"

namespace troupe::actors {

ServedModel::ServedModel(std::shared_ptr<const engine::LoadedModel> model)
    : model_(std::move(model)), vectors_(std::make_shared<const engine::HiddenStates>(model_)) {}

ServedModel::ServedModel(std::shared_ptr<const engine::Encoder> encoder)
    : encoder_(std::move(encoder)), vectors_(encoder_) {}

std::uint64_t ServedModel::weight_bytes() const {
  return model_ ? model_->model().weight_bytes() : encoder_->weight_bytes();
}

ModelDescription ServedModel::describe(std::string name) const {
  ModelDescription description{
      .name = std::move(name), .info = info(), .numerics_id = numerics_id(), .max_context = info().context};
  if (const auto& vocabulary = tokenizer()) {
    description.bos = vocabulary->bos();
    description.eos = vocabulary->eos();
  }
  if (model_) {
    description.kv_bytes_per_token = model_->cache_spec().bytes_per_token();
    description.end_ids = model_->end_ids();
  }
  return description;
}

std::uint64_t ServedModel::budget_bytes() const {
  if (!model_) return encoder_->weight_bytes() + encoder_->vocabulary_bytes();
  std::uint64_t bytes = weight_bytes() + model_->vocabulary_bytes() + kv_bytes(*model_);
  if (const auto& snapshots = model_->snapshots())
    bytes += snapshots->num_snapshots() * snapshots->bytes_per_snapshot();
  return bytes;
}

void ServedModel::add_to(KnownMemory& known) const {
  known.weights += weight_bytes();
  if (!model_) {
    known.weights_on_heap += encoder_->weight_bytes() - encoder_->matrix_bytes();
    known.vocabulary += encoder_->vocabulary_bytes();
    return;
  }
  known.weights_on_heap += model_->weight_heap_bytes();
  known.vocabulary += model_->vocabulary_bytes();
  known.kv_cache += resident_kv_bytes(*model_);
  if (model_->snapshots()) known.snapshots += model_->snapshots()->resident_bytes();
}

}  // namespace troupe::actors
