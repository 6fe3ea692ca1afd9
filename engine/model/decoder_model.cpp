#include "engine/model/decoder_model.h"

namespace troupe::engine {
namespace {

// Adds attention, and a mixer beside it, to the residual. False if no output row is left.
bool run_attention(DecoderPass& pass, const DecoderLayer& layer, bool last) {
  const bool has_mixer = static_cast<bool>(layer.mixer.in);
  pass.norm(layer.attn_norm, {&layer.q, &layer.k, &layer.v, &layer.attention_gate, &layer.mixer.in}, layer.is_parallel);
  pass.project_qkv(layer);
  if (has_mixer) pass.run_mixer(layer);
  pass.rotate_and_store();
  if (last && !pass.drop_rows_without_output()) return false;
  pass.attend();
  pass.gate_attention();
  pass.round_attention(layer.attn_sub_norm, layer.o);
  pass.add_projection(layer.o, layer.o_bias, layer.attn_post_norm);
  if (has_mixer) pass.add_mixer(layer);
  return true;
}

// Adds to the residual what stands before the feed-forward part. False if no output row is left.
bool run_mixing(DecoderPass& pass, const DecoderLayer& layer, bool last) {
  if (layer.shape.has_attention()) return run_attention(pass, layer, last);
  const bool convolves = layer.shape.recurrence == Recurrence::short_convolution;
  const bool has_delta_net = layer.shape.recurrence == Recurrence::delta_net;
  const DeltaNetLayer& net = layer.delta_net;
  if (convolves) {
    pass.norm(layer.attn_norm, {&layer.convolution.in});
    pass.run_convolution(layer);
  } else if (has_delta_net) {
    pass.norm(layer.attn_norm, {&net.gate, &net.qkv, &net.beta, &net.alpha, &net.both});
    pass.run_delta_net(layer);
  }
  if (last && !pass.drop_rows_without_output()) return false;
  if (convolves) pass.add_mixed(layer.convolution.out);
  if (has_delta_net) pass.add_mixed(net.out);
  if (layer.shape.is_linear) {
    pass.norm(layer.attn_norm, {&layer.o});
    pass.add_projection(layer.o);
  }
  return true;
}

void run_feed_forward(DecoderPass& pass, const DecoderLayer& layer) {
  if (layer.moe.router) {
    pass.norm(layer.ffn_norm, layer.moe);
    pass.add_experts(layer.moe);
    return;
  }
  if (layer.is_parallel)
    pass.prepare_normed({&layer.ffn.up, &layer.ffn.gate});
  else
    pass.norm(layer.ffn_norm, {&layer.ffn.up, &layer.ffn.gate});
  pass.gate_and_up(layer.ffn, layer.ffn_sub_norm.empty());
  pass.round_gated(layer.ffn_sub_norm, layer.ffn.down);
  pass.add_projection(layer.ffn.down, layer.ffn.down_bias, layer.ffn_post_norm);
}

}  // namespace

PassCounts DecoderModel::forward(Team& team, std::span<const SequenceRows> batch, const KvArenas& arenas,
                                 Workspace& workspace, float* hidden) const {
  DecoderPass pass(weights_, team, batch, arenas, workspace);
  pass.embed();
  for (std::uint32_t i = 0; i < weights_.layers.size(); ++i) {
    pass.begin_layer(i);
    const DecoderLayer& layer = weights_.layers[i];
    if (!run_mixing(pass, layer, i + 1 == weights_.layers.size())) break;
    if (layer.shape.has_feed_forward()) run_feed_forward(pass, layer);
  }
  pass.finish(weights_.output_norm, hidden);
  return {.kv_bytes_read = pass.kv_bytes_read()};
}

}  // namespace troupe::engine
