#include <utility>

#include "actors/gateway_options.h"
#include "config/options/values.h"
#include "engine/chat/builtin_templates.h"
#include "kernels/kernels.h"

namespace troupe::actors {
namespace {

// The value of kv-type, which is one of its values.
kernels::KvType kv_type_of(std::string_view name) {
  return name == "f32" ? kernels::KvType::f32 : name == "f16" ? kernels::KvType::f16 : kernels::KvType::i8;
}

}  // namespace

Replace replace_of(std::string_view name) {
  return name == "beside" ? Replace::beside : name == "unload-first" ? Replace::unload_first : Replace::no;
}

ModelSource source_of(ModelRequest request, const engine::LoadOptions& load, std::optional<std::uint32_t> predict,
                      double keep_alive) {
  config::ModelKeys& keys = request.keys;
  ModelSource source{.path = std::move(keys.path),
                     .name = std::move(keys.name),
                     .aliases = std::move(keys.aliases),
                     .draft_path = std::move(keys.draft),
                     .chat_template = {.name = std::move(keys.chat_template),
                                       .source = std::move(request.chat_template_source),
                                       .tool_format = std::move(keys.tool_format)},
                     .load = load,
                     .weight = keys.weight,
                     .pinned = keys.pinned,
                     .on_request = config::is_on_request(keys),
                     .keep_alive = config::parse_keep_alive(keys.keep_alive).value_or(keep_alive),
                     .predict = keys.predict ? config::answer_length(*keys.predict) : predict,
                     .defaults = std::move(keys.defaults)};
  if (const auto ours = engine::chat::find_builtin_template(source.chat_template.name);
      ours && source.chat_template.source.empty())
    source.chat_template.source = *ours;
  if (keys.ctx_size) source.load.context = static_cast<std::uint32_t>(*keys.ctx_size);
  if (keys.kv_blocks) source.load.num_blocks = static_cast<std::uint32_t>(*keys.kv_blocks);
  if (!keys.kv_type.empty()) source.load.kv_type = kv_type_of(keys.kv_type);
  source.load.memory = keys.memory.count;
  return source;
}

}  // namespace troupe::actors
