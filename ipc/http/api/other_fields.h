// Fields of vLLM, llama.cpp, Ollama, transformers and others, which their clients send to every server: a part of the
// table of fields. What would change the answer is taken with the value that changes nothing, and refused with others.
#pragma once

#include <array>
#include <string_view>

#include "ipc/http/api/fields.h"

namespace troupe::ipc::api {

namespace other_fields {

inline constexpr EndpointSet kChat = set_of(Endpoint::chat_completions), kText = set_of(Endpoint::completions),
                             kAnswers = kChat | kText | set_of(Endpoint::responses) | set_of(Endpoint::messages),
                             kAll = kAnswers | set_of(Endpoint::embeddings);

inline constexpr std::string_view kGrammar = "a grammar of GBNF, whose root is the whole answer";
inline constexpr std::string_view kNoSuchFilter = "this filter is not served";
inline constexpr std::string_view kNoSuchPenalty = "this penalty is not served";
inline constexpr std::string_view kOneDraw = "every token is drawn once; ask for several answers with n";
inline constexpr std::string_view kTextAsItIs = "an answer's text is as the model's vocabulary makes it";
inline constexpr std::string_view kSaysEnough = "answers here have no such member; leave it out";
inline constexpr std::string_view kNoAdapters = "adapters are not served; name a model";
inline constexpr std::string_view kTextAlone = "this server reads and writes text only";
inline constexpr std::string_view kTuning = "tunes another server; nothing here depends on it";
inline constexpr std::string_view kWithout = "means nothing without the field that it belongs to";

}  // namespace other_fields

inline constexpr auto kOtherFields = [] {
  using namespace other_fields;
  using enum FieldUse;
  return std::to_array<Field>({
      // Other names of what is served.
      {kChat | kText, "n_predict", kInteger, honoured, "", "of llama.cpp; the same as max_tokens"},
      {kChat | kText, "num_predict", kInteger, honoured, "", "of Ollama; the same as max_tokens"},
      {kChat | kText, "max_new_tokens", kInteger, honoured, "", "of transformers; the same as max_tokens"},

      // What would change how tokens are drawn.
      {kAnswers, "mirostat", kInteger, only, "0", "mirostat is not served"},
      {kAnswers, "typical_p", kNumber, only, "1", kNoSuchFilter},
      {kAnswers, "typ_p", kNumber, only, "1", kNoSuchFilter},
      {kAnswers, "tfs_z", kNumber, only, "1", kNoSuchFilter},
      {kAnswers, "top_a", kNumber, only, "0", kNoSuchFilter},
      {kAnswers, "top_n_sigma", kNumber, only, "-1|0", kNoSuchFilter},
      {kAnswers, "xtc_probability", kNumber, only, "0", kNoSuchFilter},
      {kAnswers, "epsilon_cutoff", kNumber, only, "0", kNoSuchFilter},
      {kAnswers, "eta_cutoff", kNumber, only, "0", kNoSuchFilter},
      {kAnswers, "min_keep", kInteger, only, "0|1", kNoSuchFilter},
      {kAnswers, "dynatemp_range", kNumber, only, "0", "the temperature is the same for all tokens"},
      {kAnswers, "smoothing_factor", kNumber, only, "0", "the temperature is the same for all tokens"},
      {kAnswers, "dry_multiplier", kNumber, only, "0", kNoSuchPenalty},
      {kAnswers, "encoder_repetition_penalty", kNumber, only, "1", kNoSuchPenalty},
      {kAnswers, "no_repeat_ngram_size", kInteger, only, "0", kNoSuchPenalty},
      {kAnswers, "penalize_nl", kBoolean, only, "false", kNoSuchPenalty},
      {kAnswers, "penalize_newline", kBoolean, only, "false", kNoSuchPenalty},
      {kAnswers, "penalty_alpha", kNumber, only, "0", "contrastive search is not served"},
      {kAnswers, "guidance_scale", kNumber, only, "1", "guidance by a second prompt is not served"},
      {kAnswers, "cfg_scale", kNumber, only, "1", "guidance by a second prompt is not served"},
      {kAnswers, "negative_prompt", kString, only, R"("")", "guidance by a second prompt is not served"},
      {kAnswers, "do_sample", kBoolean, only, "true", "temperature 0 is greedy"},
      {kAnswers, "use_beam_search", kBoolean, only, "false", kOneDraw},
      {kAnswers, "num_beams", kInteger, only, "1", kOneDraw},
      {kAnswers, "length_penalty", kNumber, only, "1", kOneDraw},
      {kAnswers, "early_stopping", kBoolean, only, "false", kOneDraw},
      {kAnswers, "samplers", kAny, refused, "", "the filters have one order (docs/protocol.md); leave it out"},
      {kAnswers, "sampler_seq", kAny, refused, "", "the filters have one order (docs/protocol.md); leave it out"},
      {kAnswers, "sampler_order", kAny, refused, "", "the filters have one order (docs/protocol.md); leave it out"},
      {kAnswers, "allowed_token_ids", kArray, only, "[]", "logit_bias bans tokens"},
      {kAnswers, "bad_words", kArray, only, "[]", "logit_bias bans tokens"},
      {kAnswers, "logits_processors", kArray, only, "[]", "programs of clients are not run here"},
      {kAnswers, "watermark", kBoolean, only, "false", "answers are not marked"},

      // Grammars.
      {kAnswers, "guided_json", kString | kObject | kBoolean, honoured, "", "a JSON Schema, or the text of one"},
      {kAnswers, "guided_regex", kString, honoured, "", "a pattern of ECMA-262 that the whole answer matches"},
      {kAnswers, "guided_choice", kArray, honoured, "", "texts one of which is the answer, up to 4096"},
      {kAnswers, "guided_grammar", kString, honoured, "", kGrammar},
      {kAnswers, "structured_outputs", kObject, honoured, "", "one of json, regex, choice, grammar and json_object"},
      {kAnswers, "structured_outputs.json", kString | kObject | kBoolean, honoured, "",
       "a JSON Schema, or the text of one"},
      {kAnswers, "structured_outputs.regex", kString, honoured, "",
       "a pattern of ECMA-262 that the whole answer matches"},
      {kAnswers, "structured_outputs.choice", kArray, honoured, "", "texts one of which is the answer, up to 4096"},
      {kAnswers, "structured_outputs.json_object", kBoolean, honoured, "", "any JSON object"},
      {kAnswers, "structured_outputs.disable_any_whitespace", kBoolean, honoured, "", "JSON without spaces"},
      {kAnswers, "structured_outputs.grammar", kString, honoured, "", kGrammar},
      {kAnswers, "structured_outputs.structural_tag", kAny, refused, "",
       "structural tags are not served; a grammar says the same"},
      {kAnswers, "structured_outputs.disable_fallback", kAny, ignored, "", "there is none"},
      {kAnswers, "structured_outputs.disable_additional_properties", kBoolean, only, "false", "say it in the schema"},
      {kAnswers, "grammar", kString, honoured, "", "llama.cpp's name of a grammar of GBNF"},
      {kAnswers, "json_schema", kObject, honoured, "", "llama.cpp's name of a JSON Schema"},
      {kAnswers, "regex", kString, honoured, "", "SGLang's name of a pattern"},
      {kAnswers, "ebnf", kString, honoured, "", "SGLang's name of a grammar"},
      {kAnswers, "format", kString | kObject, only, R"("")", "it is of Ollama's own API; response_format says it here"},

      // What would change the prompt, or where the answer ends.
      {kAnswers, "truncate_prompt_tokens", kAny, refused, "", "a prompt that is too long is refused, not shortened"},
      {kAnswers, "chat_template", kAny, refused, "",
       "templates are chosen where the model is loaded (--chat-template); chat_template_kwargs reach it"},
      {kAnswers, "raw", kBoolean, only, "false", "/v1/completions continues a text as it is"},
      {kAnswers, "think", kAny, refused, "", "reasoning.enabled says it in chats and responses, thinking in messages"},
      {kAnswers, "include_reasoning", kBoolean, only, "true", "reasoning is shown apart from the answer"},
      {kAnswers, "separate_reasoning", kBoolean, only, "true", "reasoning is shown apart from the answer"},
      {kAnswers, "stop_regex", kAny, refused, "", "stop strings are served"},
      {kAnswers, "t_max_predict_ms", kInteger, only, "-1|0", "deadline_ms ends an answer in time"},
      {kAnswers, "n_indent", kInteger, only, "0", "lines are not indented"},
      {kAnswers, "options", kAny, refused, "", "it is of Ollama's own API; what stands in it stands beside it here"},
      {kAnswers, "cache_salt", kAny, refused, "", "cache_scope says which requests share a prompt's cached beginning"},
      {kAnswers, "lora", kArray, only, "[]", kNoAdapters},
      {kAnswers, "lora_path", kAny, refused, "", kNoAdapters},
      {kAnswers, "image_data", kArray, only, "[]", kTextAlone},
      {kAnswers, "images", kArray, only, "[]", kTextAlone},

      // What would change what an answer shows.
      {kAnswers, "skip_special_tokens", kBoolean, only, "true", kTextAsItIs},
      {kAnswers, "spaces_between_special_tokens", kBoolean, only, "true|false", "the text has no special tokens"},
      {kAnswers, "detokenize", kBoolean, only, "true", kTextAsItIs},
      {kAnswers, "include_stop_str_in_output", kBoolean, only, "false", "a stop string is not part of the answer"},
      {kAnswers, "no_stop_trim", kBoolean, only, "false", "a stop string is not part of the answer"},
      {kAnswers & ~kText, "echo", kBoolean, only, "false", "/v1/completions repeats a prompt"},
      {kAnswers, "return_full_text", kBoolean, only, "false", "/v1/completions repeats a prompt, with echo"},
      {kAnswers, "n_probs", kInteger, only, "0", "logprobs show them"},
      {kAnswers, "post_sampling_probs", kBoolean, only, "false", "logprobs are those of the raw logits"},
      {kAnswers, "return_token_ids", kBoolean, only, "false", kSaysEnough},
      {kAnswers, "return_tokens", kBoolean, only, "false", kSaysEnough},
      {kAnswers, "return_tokens_as_token_ids", kBoolean, only, "false", kSaysEnough},
      {kAnswers, "return_progress", kBoolean, only, "false", kSaysEnough},
      {kAnswers, "timings_per_token", kBoolean, only, "false", "the receipt has the times of an answer"},
      {set_of(Endpoint::tokenize), "return_token_strs", kBoolean, only, "false", "with_pieces gives each id its text"},

      // What only tunes another server.
      {kAll, "num_ctx", kAny, ignored, "", "the context is the server's (--ctx-size)"},
      {kAll, "num_batch", kAny, ignored, "", kTuning},
      {kAll, "num_gpu", kAny, ignored, "", kTuning},
      {kAll, "main_gpu", kAny, ignored, "", kTuning},
      {kAll, "num_thread", kAny, ignored, "", kTuning},
      {kAll, "num_gqa", kAny, ignored, "", kTuning},
      {kAll, "numa", kAny, ignored, "", kTuning},
      {kAll, "low_vram", kAny, ignored, "", kTuning},
      {kAll, "f16_kv", kAny, ignored, "", kTuning},
      {kAll, "use_mmap", kAny, ignored, "", kTuning},
      {kAll, "use_mlock", kAny, ignored, "", kTuning},
      {kAll, "vocab_only", kAny, ignored, "", kTuning},
      {kAll, "logits_all", kAny, ignored, "", kTuning},
      {kAll, "keep_alive", kAny, ignored, "", "models stay loaded"},
      {kAll, "ttl", kAny, ignored, "", "models stay loaded"},
      {kAll, "request_id", kAny, ignored, "", "the header X-Request-Id names a request"},
      {kAll, "rid", kAny, ignored, "", "the header X-Request-Id names a request"},
      {kAnswers, "num_keep", kAny, ignored, "", "no context is shifted here"},
      {kAnswers, "n_keep", kAny, ignored, "", "no context is shifted here"},
      {kAnswers, "n_discard", kAny, ignored, "", "no context is shifted here"},
      {kAnswers, "cache_prompt", kAny, ignored, "", "common beginnings of prompts are always cached"},
      {kAnswers, "n_cache_reuse", kAny, ignored, "", "common beginnings of prompts are always cached"},
      {kAnswers, "id_slot", kAny, ignored, "", kTuning},
      {kAnswers, "slot_id", kAny, ignored, "", kTuning},
      {kAnswers, "draft_model", kAny, ignored, "", "speculation chooses what drafts, and never changes an answer"},
      {kAnswers, "kv_transfer_params", kAny, ignored, "", kTuning},
      {kAnswers, "data_parallel_rank", kAny, ignored, "", kTuning},
      {kAnswers, "mm_processor_kwargs", kAny, ignored, "", kTextAlone},
      {kAnswers, "mirostat_tau", kAny, ignored, "", kWithout},
      {kAnswers, "mirostat_eta", kAny, ignored, "", kWithout},
      {kAnswers, "dynatemp_exponent", kAny, ignored, "", kWithout},
      {kAnswers, "smoothing_curve", kAny, ignored, "", kWithout},
      {kAnswers, "xtc_threshold", kAny, ignored, "", kWithout},
      {kAnswers, "dry_base", kAny, ignored, "", kWithout},
      {kAnswers, "dry_allowed_length", kAny, ignored, "", kWithout},
      {kAnswers, "dry_penalty_last_n", kAny, ignored, "", kWithout},
      {kAnswers, "dry_sequence_breakers", kAny, ignored, "", kWithout},
      {kAnswers, "guided_decoding_backend", kAny, ignored, "", kWithout},
      {kAnswers, "guided_whitespace_pattern", kAny, ignored, "", kWithout},
  });
}();

}  // namespace troupe::ipc::api
