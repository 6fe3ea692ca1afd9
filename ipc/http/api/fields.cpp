#include "ipc/http/api/fields.h"

#include <algorithm>
#include <array>
#include <utility>

#include "actors/requests/request.h"
#include "config/draft_limit.h"
#include "ipc/http/api/other_fields.h"

namespace troupe::ipc::api {
namespace {

using enum FieldUse;

constexpr EndpointSet kChat = set_of(Endpoint::chat_completions), kText = set_of(Endpoint::completions),
                      kEmbed = set_of(Endpoint::embeddings), kResponses = set_of(Endpoint::responses),
                      kMessages = set_of(Endpoint::messages), kCount = set_of(Endpoint::count_tokens),
                      kTokenize = set_of(Endpoint::tokenize), kDetokenize = set_of(Endpoint::detokenize),
                      kTemplate = set_of(Endpoint::apply_template);
constexpr EndpointSet kOpenAi = kChat | kText | kResponses, kGenerate = kOpenAi | kMessages;
constexpr EndpointSet kAnthropic = kMessages | kCount, kTurns = kChat | kTemplate;

constexpr std::string_view kSendAllowed = "send the tools alone that may be called";
constexpr std::string_view kOnlyFunctions =
    "tools that no client runs (web_search) are left out, and named in x-troupe-ignored";
constexpr std::string_view kOneText = "for the model a function with one parameter, the text input";
constexpr std::string_view kNoInputGrammar = "grammars are not served yet; describe the format in the description";
constexpr std::string_view kHeld =
    "arguments always meet the schema; with it a schema that cannot be enforced is refused, else any object is taken";
constexpr std::string_view kTextOnly = "this server reads and writes text only";
constexpr std::string_view kStateless = "nothing is stored here; send the whole conversation";
constexpr std::string_view kHosted = "this is a service of the API's own provider";
constexpr std::string_view kNoModeration = "this server moderates nothing; run a classifier beside it";
constexpr std::string_view kCachesAnyway = "a hint; common beginnings of prompts are cached without it";
constexpr std::string_view kTemplateKnows = "reaches the chat template; those that do not know it ignore it";
constexpr std::string_view kReturned = "returned with the answer";
constexpr std::string_view kEnforced = "a JSON Schema; enforced, or refused by the keyword that cannot be";
constexpr std::string_view kAlwaysStrict = "a schema is always enforced";
constexpr std::string_view kOtherForms = "vLLM's structured_outputs take patterns, choices and grammars";

// Grouped by what the fields are about. A row that comes first is found first.
constexpr auto kOwnFields = std::to_array<Field>({
    // The model and the prompt.
    {kGenerate | kCount | kEmbed | kTokenize | kDetokenize | kTemplate, "model", kString, honoured, "",
     "the name of a loaded model; empty or left out: the default one"},
    {kTurns, "messages", kArray, honoured, "", "the conversation, 1 to 4096 messages"},
    {kTurns, "messages[].role", kString, honoured, R"("system"|"developer"|"user"|"assistant"|"tool")",
     "developer is system for a template that does not know it"},
    {kTurns, "messages[].content", kString | kArray, honoured, "",
     "text, or parts of text; a template that reads texts gets the parts joined by newlines"},
    {kTurns, "messages[].content[].type", kString, only, R"("text")", kTextOnly},
    {kTurns, "messages[].content[].text", kString, honoured, "", ""},
    {kTurns, "messages[].content[].prompt_cache_breakpoint", kAny, refused, "",
     "breakpoints are not needed: common beginnings of prompts are cached anyway; leave it out"},
    {kTurns, "messages[].content[].image_url", kAny, refused, "", kTextOnly},
    {kTurns, "messages[].content[].input_audio", kAny, refused, "", kTextOnly},
    {kTurns, "messages[].content[].file", kAny, refused, "", kTextOnly},
    {kTurns, "messages[].content[].refusal", kAny, refused, "", "this server's answers have no refusals; send text"},
    {kTurns, "messages[].name", kString, honoured, "", kTemplateKnows},
    {kTurns, "messages[].reasoning_content", kString, honoured, "",
     "of an earlier answer; reaches the chat template, which may leave it out"},
    {kTurns, "messages[].reasoning", kString, honoured, "", "of vLLM; the same as reasoning_content"},
    {kTurns, "messages[].tool_calls", kArray, honoured, "",
     "of an earlier answer of the assistant; reaches the chat template, with the arguments as an object"},
    {kTurns, "messages[].tool_calls[].id", kString, honoured, "", ""},
    {kTurns, "messages[].tool_calls[].index", kInteger, honoured, "", "of a stream's delta that is sent back"},
    {kTurns, "messages[].tool_calls[].type", kString, honoured, R"("function"|"custom")", ""},
    {kTurns, "messages[].tool_calls[].function", kObject, honoured, "", ""},
    {kTurns, "messages[].tool_calls[].function.name", kString, honoured, "", ""},
    {kTurns, "messages[].tool_calls[].function.arguments", kString | kObject, honoured, "",
     "an object, or its JSON text"},
    {kTurns, "messages[].tool_calls[].custom", kObject, honoured, "",
     "reaches the chat template as the call of a function with the argument input"},
    {kTurns, "messages[].tool_calls[].custom.name", kString, honoured, "", ""},
    {kTurns, "messages[].tool_calls[].custom.input", kString, honoured, "", ""},
    {kTurns, "messages[].tool_calls[].function.parsed_arguments", kAny, ignored, "",
     "of a client library; arguments say the same"},
    {kTurns, "messages[].parsed", kAny, ignored, "", "of a client library; content says the same"},
    {kTurns, "messages[].tool_call_id", kString, honoured, "", "of a tool's message; reaches the chat template"},
    {kTurns, "messages[].function_call", kAny, refused, "", "an old name; send tool_calls"},
    {kTurns, "messages[].audio", kAny, refused, "", kTextOnly},
    {kTurns, "messages[].refusal", kAny, refused, "", "this server's answers have no refusals; leave it out"},
    {kTurns, "messages[].annotations", kArray, only, "[]", "this server's answers have none"},
    {kTurns, "add_generation_prompt", kBoolean, honoured, "",
     "default true; false: the prompt ends with the last message and the template's marks behind it"},
    {kTurns, "continue_final_message", kBoolean, honoured, "",
     "the answer goes on with the text of the last message; no generation prompt is added then"},
    {kTurns, "documents", kArray, honoured, "", kTemplateKnows},
    {kTurns | kResponses | kAnthropic, "chat_template_kwargs", kObject, honoured, "",
     "variables for the chat template; they take precedence over what other fields set"},
    {kText, "prompt", kString | kArray, honoured, "",
     "text or token ids, or an array of either: each prompt has its n choices, one prompt after the other, at most 64 "
     "in all; "
     "if one is refused, all are"},
    {kText, "suffix", kString, refused, "", "text is continued at its end only; leave it out"},
    {kText, "echo", kBoolean, honoured, "",
     "the prompt comes before each answer; with logprobs those of its tokens, too"},
    {kText, "best_of", kInteger, honoured, "", "must equal n: all answers are returned, none is chosen"},
    {kEmbed, "input", kString | kArray, honoured, "",
     "a text, token ids, or an array of up to 2,048 texts or arrays of token ids"},
    {kEmbed, "encoding_format", kString, honoured, R"("float"|"base64")", "base64: little-endian float32"},
    {kEmbed, "dimensions", kInteger, honoured, "", "must equal the width of the model's vectors: none are shortened"},
    {kEmbed, "pooling", kString, honoured, R"("mean"|"cls"|"last")", "of troupe; default: the model's own"},
    {kEmbed, "normalize", kBoolean, honoured, "", "of troupe; default true"},
    {kEmbed, "truncate", kBoolean, honoured, "",
     "of text-embeddings-inference and Ollama: texts that are too long are cut at their end, or refused; default: as "
     "the "
     "server was started (--embed-truncate); usage.truncated_tokens says how much"},
    {kEmbed, "truncate_prompt_tokens", kInteger, honoured, "",
     "of vLLM: texts are cut to so many tokens; -1: to as many as the model reads"},

    // How many answers, how long, and in which shape.
    {kChat | kText, "n", kInteger, honoured, "", "answers from one prefill, 1 to 64"},
    {kChat | kText | kMessages, "max_tokens", kInteger, honoured, "",
     "of each answer, -1: no limit; messages: required; default: --predict of the server, else completions 16, chat "
     "what fits; completions with echo also 0"},
    {kChat, "max_completion_tokens", kInteger, honoured, "", "the same as max_tokens"},
    {kResponses, "max_output_tokens", kInteger, honoured, "", "of the answer, with its reasoning; -1: no limit"},
    {kGenerate, "stream", kBoolean, honoured, "", "server-sent events"},
    {kOpenAi, "stream_options", kObject, honoured, "", "only with stream"},
    {kChat | kText, "stream_options.include_usage", kBoolean, honoured, "", "a last chunk with the usage"},
    {kChat | kText, "stream_options.continuous_usage_stats", kBoolean, honoured, "",
     "of vLLM; each chunk has the usage so far: prompt_tokens, completion_tokens, total_tokens"},
    {kOpenAi, "stream_options.include_obfuscation", kBoolean, only, "false", "events are not padded"},
    {kChat, "stop", kString | kArray, honoured, "",
     "up to 16 strings of up to 256 bytes; looked for in the content, not in the reasoning"},
    {kText, "stop", kString | kArray, honoured, "", "up to 16 strings of up to 256 bytes"},
    {kMessages, "stop_sequences", kArray, honoured, "",
     "up to 16 strings of up to 256 bytes; looked for in the text, not in the thinking"},
    {kChat, "logprobs", kBoolean, honoured, "", "of each token of the answer, reasoning included"},
    {kText, "logprobs", kInteger, honoured, "", "of each token and this many likeliest ones, 0 to 20"},
    {kChat, "top_logprobs", kInteger, honoured, "", "0 to 20, with logprobs"},
    {kResponses, "top_logprobs", kInteger, honoured, "", "0 to 20, with message.output_text.logprobs in include"},
    {kChat | kText, "prompt_logprobs", kAny, refused, "",
     "logprobs of a prompt come with echo and logprobs of /v1/completions"},
    {kResponses, "include", kArray, honoured, "",
     "message.output_text.logprobs; of what else the API names there is nothing to include"},
    {kChat | kText, "response_format", kObject, honoured, "", "what the answer has to be; not beside tools"},
    {kChat | kText, "response_format.type", kString, only, R"("text"|"json_object"|"json_schema")", kOtherForms},
    {kChat | kText, "response_format.json_schema", kObject, honoured, "", ""},
    {kChat | kText, "response_format.json_schema.name", kString, honoured, "", "not used"},
    {kChat | kText, "response_format.json_schema.description", kString, honoured, "", "not used; say it in the prompt"},
    {kChat | kText, "response_format.json_schema.schema", kObject | kBoolean, honoured, "", kEnforced},
    {kChat | kText, "response_format.json_schema.strict", kBoolean, honoured, "", kAlwaysStrict},
    {kResponses, "text", kObject, honoured, "", ""},
    {kResponses, "text.format", kObject, honoured, "", "what the answer has to be; not beside tools"},
    {kResponses, "text.format.type", kString, only, R"("text"|"json_object"|"json_schema")", kOtherForms},
    {kResponses, "text.format.name", kString, honoured, "", "not used"},
    {kResponses, "text.format.schema", kObject | kBoolean, honoured, "", kEnforced},
    {kResponses, "text.format.strict", kBoolean, honoured, "", kAlwaysStrict},
    {kResponses, "text.format.description", kString, honoured, "", "not used; say it in the prompt"},
    {kResponses, "text.verbosity", kString, only, R"("medium")", "models here do not know it; say it in the prompt"},
    {kChat, "verbosity", kString, only, R"("medium")", "models here do not know it; say it in the prompt"},
    {kChat, "modalities", kArray, only, R"(["text"])", kTextOnly},
    {kChat, "audio", kAny, refused, "", kTextOnly},
    {kChat, "prediction", kAny, refused, "", "predicted outputs are not served; leave it out"},

    // Sampling.
    {kGenerate, "temperature", kNumber, honoured, "",
     "0 (greedy) to 100; default: the model's (troupe.defaults of /v1/models), else 1"},
    {kGenerate, "top_p", kNumber, honoured, "", "above 0, at most 1; default: the model's, else 1"},
    {kGenerate, "top_k", kInteger, honoured, "", "-1 or 0: all; default: the model's, else all"},
    {kGenerate, "min_p", kNumber, honoured, "", "of troupe; 0 to 1; default: the model's, else 0"},
    {kGenerate, "presence_penalty", kNumber, honoured, "",
     "-100 to 100, over the tokens of the answer; default: the model's, else 0"},
    {kGenerate, "frequency_penalty", kNumber, honoured, "",
     "-100 to 100, over the tokens of the answer; default: the model's, else 0"},
    {kGenerate, "repeat_penalty", kNumber, honoured, "",
     "of troupe; above 0, at most 100; default: the model's, else 1"},
    {kGenerate, "repetition_penalty", kNumber, honoured, "", "of vLLM and transformers; the same as repeat_penalty"},
    {kGenerate, "repeat_last_n", kInteger, honoured, "",
     "of troupe; tokens that repeat_penalty looks at, prompt included; -1: all; default: the model's, else 64"},
    {kGenerate, "logit_bias", kObject, honoured, "", "up to 1024 token ids, as strings, with what is added"},
    {kGenerate, "seed", kInteger | kString, honoured, "",
     "64 bits, also as digits in a string; the same seed gives the same answer; -1 and default: drawn, and returned"},
    {kGenerate, "ignore_eos", kBoolean, honoured, "", "of troupe; end tokens are never drawn"},
    {kGenerate, "min_tokens", kInteger, honoured, "",
     "of vLLM; before so many tokens no end token, stop_token_ids or stop string ends the answer; at most max_tokens, "
     "default 0"},
    {kGenerate, "stop_token_ids", kArray, honoured, "", "of troupe; up to 64 ids that end the answer"},

    // Speculation: of troupe.
    {kGenerate, "speculation", kObject, honoured, "", "of troupe; never changes the answer; default: the server's"},
    {kGenerate, "speculation.type", kString, honoured, R"("off"|"auto"|"draft"|"ngram"|"suffix")", ""},
    {kGenerate, "speculation.n_max", kInteger, honoured, "", "tokens of a draft, 0 to 16"},
    {kGenerate, "speculation.n_min", kInteger, honoured, "", "shorter drafts are not used; 0 to 16"},
    {kGenerate, "speculation.p_min", kNumber, honoured, "",
     "a draft model's draft ends before a token of lower probability; 0 to 1"},

    // Reasoning.
    {kChat, "reasoning_effort", kString, honoured, R"("none"|"minimal"|"low"|"medium"|"high"|"xhigh"|"max")",
     "none: template variable enable_thinking is false; else true, and reasoning_effort is this"},
    {kChat | kResponses, "reasoning", kObject, honoured, "", "as reasoning_effort"},
    {kChat | kResponses, "reasoning.effort", kString, honoured,
     R"("none"|"minimal"|"low"|"medium"|"high"|"xhigh"|"max")", "as reasoning_effort"},
    {kChat | kResponses, "reasoning.enabled", kBoolean, honoured, "", "template variable enable_thinking"},
    {kChat | kResponses, "reasoning.max_tokens", kInteger, honoured, "",
     "tokens of the reasoning; once they are used up, the marker that ends it comes"},
    {kChat, "thinking_token_budget", kInteger, honoured, "", "of vLLM; the same as reasoning.max_tokens"},
    {kResponses, "reasoning.summary", kAny, ignored, "", "reasoning is shown as it is, not summarised"},
    {kResponses, "reasoning.generate_summary", kAny, ignored, "", "reasoning is shown as it is, not summarised"},
    {kResponses, "reasoning.mode", kString, refused, "", kHosted},
    {kResponses, "reasoning.context", kString, refused, "",
     "the chat template decides which earlier reasoning the model reads"},
    {kAnthropic, "thinking", kObject, honoured, "",
     "left out or disabled: template variable enable_thinking is false, and thinking is left out of the answer"},
    {kAnthropic, "thinking.type", kString, honoured, R"("enabled"|"disabled"|"adaptive")", ""},
    {kAnthropic, "thinking.budget_tokens", kInteger, honoured, "",
     "with enabled: tokens of the thinking, below max_tokens; once they are used up, the marker that ends it comes. "
     "Also template "
     "variable thinking_budget"},
    {kAnthropic, "thinking.display", kString, only, R"("summarized")", "thinking is shown as it is"},

    // Serving: of troupe, except for the tier.
    {kGenerate, "troupe", kObject, honoured, "",
     "of troupe; what stands in it may stand beside it instead, but for receipt"},
    {kGenerate, "troupe.priority", kInteger, honoured, "", "as priority"},
    {kGenerate, "troupe.deadline_ms", kInteger, honoured, "", "as deadline_ms"},
    {kGenerate, "troupe.cache_scope", kString, honoured, "", "as cache_scope"},
    {kText | kChat, "troupe.session", kString, honoured, "", "as session"},
    {kText | kChat, "troupe.session_recompute", kBoolean, honoured, "", "as session_recompute"},
    {kGenerate, "troupe.receipt", kBoolean | kString, honoured, R"(true|false|"full")",
     "default true: the answer has a receipt of each choice in its own object troupe; full: with all that troupe "
     "verify "
     "needs in its member proof"},
    {kGenerate, "priority", kInteger, honoured, "",
     "of troupe; -1000 to 1000, lower is earlier; below 0 only for tenants with a rule for it"},
    {kGenerate, "deadline_ms", kInteger, honoured, "", "of troupe; then the answer ends with the tokens so far"},
    {kGenerate, "cache_scope", kString, honoured, "", "of troupe; which requests share the prompt's cached beginning"},
    {kText, "session", kString, honoured, "", "of troupe; the kept conversation that the prompt continues"},
    {kChat, "session", kString, honoured, "",
     "of troupe; the kept conversation that messages begin, or continue: then send those since its last answer"},
    {kText | kChat, "session_recompute", kBoolean, honoured, "",
     "of troupe; continue the session also if it was computed under other numerics, or by a model with the same "
     "vocabulary and chat template; the receipt's recomputed_from says under which"},
    {kChat | kResponses, "service_tier", kString, only, R"("auto"|"default")", "all requests are served alike"},
    {kMessages, "service_tier", kString, only, R"("auto"|"standard_only")", "all requests are served alike"},
    {kOpenAi | kEmbed, "user", kString, honoured, "", kReturned},
    {kChat | kResponses, "safety_identifier", kString, honoured, "", kReturned},
    {kChat | kResponses, "metadata", kObject, honoured, "", "up to 16 texts, returned with the answer"},
    {kMessages, "metadata", kObject, honoured, "", kReturned},
    {kMessages, "metadata.user_id", kString, honoured, "", kReturned},
    {kChat | kResponses, "prompt_cache_key", kString, honoured, "", kCachesAnyway},
    {kChat | kResponses, "prompt_cache_retention", kString, only, R"("in_memory")",
     "what is cached stays while there is room"},
    {kChat | kResponses, "prompt_cache_options", kAny, refused, "",
     "common beginnings of prompts are cached anyway; leave it out"},
    {kChat | kResponses, "store", kBoolean, only, "true|false", "nothing is stored here, whatever it says"},
    {kChat | kResponses, "moderation", kAny, refused, "", kNoModeration},

    // Tools.
    {kTemplate, "tools", kArray, honoured, "", kTemplateKnows},
    {kChat | kResponses | kAnthropic, "tools", kArray, honoured, "",
     "functions that the model may call, at most 1024; a template that knows no tools gets them as instructions"},
    {kTurns, "tools[].type", kString, honoured, "", kOnlyFunctions},
    {kTurns, "tools[].function", kObject, honoured, "", ""},
    {kTurns, "tools[].function.name", kString, honoured, "", "1 to 128 bytes, without spaces, quotes and brackets"},
    {kTurns, "tools[].function.description", kString, honoured, "", ""},
    {kTurns, "tools[].function.parameters", kObject, honoured, "", "a JSON schema"},
    {kTurns, "tools[].function.return", kObject, honoured, "", ""},
    {kChat, "tools[].function.strict", kBoolean, honoured, "", kHeld},
    {kTemplate, "tools[].function.strict", kAny, ignored, "", "no answer is made"},
    {kChat, "tools[].custom", kObject, honoured, "", kOneText},
    {kChat, "tools[].custom.name", kString, honoured, "", "1 to 128 bytes, without spaces, quotes and brackets"},
    {kChat, "tools[].custom.description", kString, honoured, "", ""},
    {kChat, "tools[].custom.format", kObject, honoured, "", ""},
    {kChat, "tools[].custom.format.type", kString, only, R"("text")", kNoInputGrammar},
    {kChat, "tools[].custom.format.grammar", kAny, refused, "", kNoInputGrammar},
    {kTemplate, "tools[].custom", kAny, refused, "", "chat templates know functions alone"},
    {kResponses | kAnthropic, "tools[].type", kString, honoured, "", kOnlyFunctions},
    {kResponses | kAnthropic, "tools[].name", kString, honoured, "",
     "1 to 128 bytes, without spaces, quotes and brackets"},
    {kResponses | kAnthropic, "tools[].description", kString, honoured, "", ""},
    {kResponses, "tools[].parameters", kObject, honoured, "", "a JSON schema"},
    {kResponses, "tools[].format", kObject, honoured, "", "of a custom tool"},
    {kResponses, "tools[].format.type", kString, only, R"("text")", kNoInputGrammar},
    {kResponses, "tools[].format.syntax", kAny, refused, "", kNoInputGrammar},
    {kResponses, "tools[].format.definition", kAny, refused, "", kNoInputGrammar},
    {kResponses, "tools[].tools", kArray, honoured, "",
     "of a namespace, whose tools the model knows by the names NAMESPACE__NAME"},
    {kResponses, "tools[].tools[].type", kString, honoured, "", "function or custom"},
    {kResponses, "tools[].tools[].name", kString, honoured, "",
     "with the namespace before it 1 to 128 bytes, without spaces, quotes and brackets"},
    {kResponses, "tools[].tools[].description", kString, honoured, "", ""},
    {kResponses, "tools[].tools[].parameters", kObject, honoured, "", "a JSON schema"},
    {kResponses, "tools[].tools[].strict", kBoolean, honoured, "", kHeld},
    {kResponses, "tools[].tools[].format", kObject, honoured, "", "of a custom tool"},
    {kResponses, "tools[].tools[].format.type", kString, only, R"("text")", kNoInputGrammar},
    {kResponses, "tools[].tools[].format.syntax", kAny, refused, "", kNoInputGrammar},
    {kResponses, "tools[].tools[].format.definition", kAny, refused, "", kNoInputGrammar},
    {kResponses, "tools[].tools[].defer_loading", kBoolean, only, "false", "tools are not searched for here"},
    {kResponses, "tools[].tools[].allowed_callers", kAny, ignored, "", "the client calls, as always"},
    {kResponses, "tools[].tools[].output_schema", kAny, ignored, "", "chat templates know none"},
    {kAnthropic, "tools[].input_schema", kObject, honoured, "", "a JSON schema"},
    {kResponses | kAnthropic, "tools[].strict", kBoolean, honoured, "", kHeld},
    {kResponses | kAnthropic, "tools[].defer_loading", kBoolean, only, "false", "tools are not searched for here"},
    {kResponses | kAnthropic, "tools[].allowed_callers", kAny, ignored, "", "the client calls, as always"},
    {kResponses, "tools[].output_schema", kAny, ignored, "", "chat templates know none"},
    {kAnthropic, "tools[].cache_control", kObject, honoured, "", kCachesAnyway},
    {kAnthropic, "tools[].eager_input_streaming", kAny, ignored, "", "arguments are always sent as they are written"},
    {kAnthropic, "tools[].input_examples", kAny, ignored, "", "chat templates know none"},
    {kChat | kResponses, "tool_choice", kString | kObject, honoured, "",
     "none, auto, required, or a tool by its name (of a namespace: NAMESPACE__NAME); the last two begin the answer "
     "with "
     "a call"},
    {kAnthropic, "tool_choice", kObject, honoured, "",
     "type auto, any, tool (with name) or none; any and tool begin the answer with a call. disable_parallel_tool_use: "
     "the answer ends behind its first call"},
    {kChat | kResponses | kAnthropic, "tool_choice.type", kString, honoured, "", ""},
    {kChat, "tool_choice.function", kObject, honoured, "", ""},
    {kChat, "tool_choice.function.name", kString, honoured, "", ""},
    {kResponses | kAnthropic, "tool_choice.name", kString, honoured, "", ""},
    {kAnthropic, "tool_choice.disable_parallel_tool_use", kBoolean, honoured, "", ""},
    {kChat, "tool_choice.allowed_tools", kAny, refused, "", kSendAllowed},
    {kResponses, "tool_choice.mode", kAny, refused, "", kSendAllowed},
    {kResponses, "tool_choice.tools", kAny, refused, "", kSendAllowed},
    {kResponses, "tool_choice.server_label", kAny, refused, "", kHosted},
    {kChat, "tool_choice.custom", kObject, honoured, "", ""},
    {kChat, "tool_choice.custom.name", kString, honoured, "", ""},
    {kChat | kResponses, "parallel_tool_calls", kBoolean, honoured, "", "false: the answer ends behind its first call"},
    {kResponses, "max_tool_calls", kInteger, refused, "", "a call ends the answer, and the client runs it"},
    {kChat, "functions", kArray, only, "[]", "an old name; send tools"},
    {kChat, "function_call", kString | kObject, only, R"("none"|"auto")", "an old name; send tool_choice"},
    {kChat, "web_search_options", kAny, refused, "", kHosted},

    // Responses: input and state.
    {kResponses, "input", kString | kArray, honoured, "", "a text of the user, or messages and reasoning items"},
    {kResponses, "input[].type", kString, honoured,
     R"("message"|"reasoning"|"function_call"|"function_call_output"|"custom_tool_call"|"custom_tool_call_output")",
     "other items are not served, and none is stored that item_reference could name; with store false clients send "
     "items whole"},
    {kResponses, "input[].call_id", kString, honoured, "", "of a call, and of what its tool gave"},
    {kResponses, "input[].namespace", kString, honoured, "", "of the tool that an earlier answer called"},
    {kResponses, "input[].name", kString, honoured, "", "of the tool that an earlier answer called"},
    {kResponses, "input[].arguments", kString, honoured, "", "of a call: the text of a JSON object"},
    {kResponses, "input[].input", kString, honoured, "", "of a call of a custom tool"},
    {kResponses, "input[].caller", kAny, ignored, "", "the client calls, as always"},
    {kResponses, "input[].parsed_arguments", kAny, ignored, "", "of a client library; arguments say the same"},
    {kResponses, "input[].content[].parsed", kAny, ignored, "", "of a client library; the text says the same"},
    {kResponses, "input[].output", kString | kArray, honoured, "", "what a tool gave: text, or parts of text"},
    {kResponses, "input[].output[].type", kString, only, R"("input_text"|"output_text")", kTextOnly},
    {kResponses, "input[].output[].text", kString, honoured, "", ""},
    {kResponses, "input[].role", kString, honoured, R"("system"|"developer"|"user"|"assistant")", ""},
    {kResponses, "input[].content", kString | kArray, honoured, "",
     "text, or parts of text; a template that reads texts gets the parts joined by newlines"},
    {kResponses, "input[].content[].type", kString, honoured, R"("input_text"|"output_text"|"reasoning_text")",
     kTextOnly},
    {kResponses, "input[].content[].text", kString, honoured, "", ""},
    {kResponses, "input[].content[].annotations", kArray, only, "[]", "this server's answers have none"},
    {kResponses, "input[].content[].logprobs", kArray, honoured, "",
     "of an earlier answer that is sent back; the model reads its text"},
    {kResponses, "input[].content[].prompt_cache_breakpoint", kAny, refused, "",
     "breakpoints are not needed: common beginnings of prompts are cached anyway; leave it out"},
    {kResponses, "input[].content[].image_url", kAny, refused, "", kTextOnly},
    {kResponses, "input[].content[].detail", kAny, refused, "", kTextOnly},
    {kResponses, "input[].content[].file_id", kAny, refused, "", kTextOnly},
    {kResponses, "input[].content[].file_url", kAny, refused, "", kTextOnly},
    {kResponses, "input[].content[].file_data", kAny, refused, "", kTextOnly},
    {kResponses, "input[].content[].filename", kAny, refused, "", kTextOnly},
    {kResponses, "input[].content[].refusal", kAny, refused, "", "this server's answers have no refusals; send text"},
    {kResponses, "input[].id", kString, honoured, "", "names nothing here: the item is what the request says"},
    {kResponses, "input[].status", kString, honoured, R"("in_progress"|"completed"|"incomplete")",
     "of an earlier answer that is sent back; the model reads its text"},
    {kResponses, "input[].summary", kArray, only, "[]", "reasoning is read from content"},
    {kResponses, "input[].encrypted_content", kAny, refused, "", kHosted},
    {kResponses, "input[].phase", kString, refused, "", "the models here know no phases"},
    {kResponses, "instructions", kString, honoured, "", "a first message of the system"},
    {kResponses, "previous_response_id", kString, refused, "", kStateless},
    {kResponses, "conversation", kAny, refused, "", kStateless},
    {kResponses, "prompt", kAny, refused, "", "prompts are not stored here; send the text as input"},
    {kResponses, "background", kBoolean, only, "false", "answers are given while the client waits"},
    {kResponses, "truncation", kString, only, R"("disabled"|"auto")",
     "a conversation that is too long is refused, not shortened, with either"},
    {kResponses, "client_metadata", kAny, ignored, "", "for the records of the API's own provider"},
    {kResponses, "context_management", kAny, refused, "", "send the part of the conversation that shall be read"},

    // Anthropic's messages.
    {kAnthropic, "messages", kArray, honoured, "",
     "the conversation; if its last message is the assistant's, that is continued"},
    {kAnthropic, "messages[].role", kString, honoured, R"("user"|"assistant"|"system")", ""},
    {kAnthropic, "messages[].content", kString | kArray, honoured, "",
     "text, or blocks of text, thinking, calls of tools and their results"},
    {kAnthropic, "messages[].content[].type", kString, honoured, R"("text"|"thinking"|"tool_use"|"tool_result")",
     kTextOnly},
    {kAnthropic, "messages[].content[].id", kString, honoured, "", "of a tool_use"},
    {kAnthropic, "messages[].content[].name", kString, honoured, "", "of a tool_use"},
    {kAnthropic, "messages[].content[].input", kObject, honoured, "", "of a tool_use"},
    {kAnthropic, "messages[].content[].tool_use_id", kString, honoured, "", "of a tool_result"},
    {kAnthropic, "messages[].content[].is_error", kBoolean, honoured, "",
     "of a tool_result; true: the text begins with Error:"},
    {kAnthropic, "messages[].content[].content", kString | kArray, honoured, "",
     "of a tool_result: text, or blocks of text"},
    {kAnthropic, "messages[].content[].content[].type", kString, only, R"("text")", kTextOnly},
    {kAnthropic, "messages[].content[].content[].text", kString, honoured, "", ""},
    {kAnthropic, "messages[].content[].text", kString, honoured, "", ""},
    {kAnthropic, "messages[].content[].thinking", kString, honoured, "",
     "of an earlier answer; reaches the chat template, which may leave it out"},
    {kAnthropic, "messages[].content[].signature", kString, honoured, "",
     "of an earlier answer that is sent back; it is not verified, as thinking is not hidden here"},
    {kAnthropic, "messages[].content[].citations", kArray, only, "[]", "this server's answers have none"},
    {kAnthropic, "messages[].content[].cache_control", kObject, honoured, "", kCachesAnyway},
    {kAnthropic, "messages[].content[].cache_control.type", kString, only, R"("ephemeral")", kCachesAnyway},
    {kAnthropic, "messages[].content[].cache_control.ttl", kString, only, R"("5m"|"1h")",
     "what is cached stays while there is room"},
    {kAnthropic, "system", kString | kArray, honoured, "", "text, or blocks of text"},
    {kAnthropic, "system[].type", kString, only, R"("text")", kTextOnly},
    {kAnthropic, "system[].text", kString, honoured, "", ""},
    {kAnthropic, "system[].citations", kArray, only, "[]", "this server's answers have none"},
    {kAnthropic, "system[].cache_control", kObject, honoured, "", kCachesAnyway},
    {kAnthropic, "system[].cache_control.type", kString, only, R"("ephemeral")", kCachesAnyway},
    {kAnthropic, "system[].cache_control.ttl", kString, only, R"("5m"|"1h")",
     "what is cached stays while there is room"},
    {kAnthropic, "cache_control", kObject, honoured, "", kCachesAnyway},
    {kAnthropic, "cache_control.type", kString, only, R"("ephemeral")", kCachesAnyway},
    {kAnthropic, "cache_control.ttl", kString, only, R"("5m"|"1h")", "what is cached stays while there is room"},
    {kAnthropic, "output_config", kObject, honoured, "", ""},
    {kAnthropic, "output_config.effort", kString, honoured, R"("low"|"medium"|"high"|"xhigh"|"max")",
     "template variable reasoning_effort"},
    {kAnthropic, "output_config.format", kObject, honoured, "", "what the answer has to be; not beside tools"},
    {kAnthropic, "output_config.format.type", kString, only, R"("json_schema")", kOtherForms},
    {kAnthropic, "output_config.format.schema", kObject | kBoolean, honoured, "", kEnforced},
    {kAnthropic, "output_format", kObject, honoured, "", "an older name of output_config.format"},
    {kAnthropic, "output_format.type", kString, only, R"("json_schema")", kOtherForms},
    {kAnthropic, "output_format.schema", kObject | kBoolean, honoured, "", kEnforced},
    {kMessages, "container", kAny, refused, "", kHosted},
    {kAnthropic, "thread", kAny, refused, "", kStateless},
    {kAnthropic, "mcp_servers", kArray, only, "[]", kHosted},
    {kAnthropic, "context_management", kObject, only,
     R"({"edits":[]}|{"edits":[{"type":"clear_thinking_20251015","keep":"all"}]}|)"
     R"({"edits":[{"keep":"all","type":"clear_thinking_20251015"}]})",
     "nothing is taken out of a conversation; send the part that shall be read"},
    {kMessages, "inference_geo", kString, refused, "", kHosted},
    {kAnthropic, "speed", kString, only, R"("standard")", "all requests are served alike"},

    // Of troupe: text and ids.
    {kTokenize, "content", kString, honoured, "", "the text"},
    {kTokenize, "prompt", kString, honoured, "", "of vLLM, in place of content; then add_special is true by default"},
    {kTokenize, "add_special", kBoolean, honoured, "", "default false; BOS and EOS, as the vocabulary asks for"},
    {kTokenize, "parse_special", kBoolean, honoured, "", "default true; false: control tokens stay text"},
    {kTokenize, "with_pieces", kBoolean, honoured, "",
     "each id with its text, as llama-server: bytes that are no text are an array of numbers"},
    {kDetokenize, "tokens", kArray, honoured, "", "up to 65536 ids"},
    {kText | kEmbed, "add_special", kBoolean, honoured, "", "of troupe; default true"},
    {kText | kEmbed, "add_special_tokens", kBoolean, honoured, "", "of vLLM; the same as add_special"},
    {kTokenize, "add_special_tokens", kBoolean, honoured, "", "of vLLM; the same as add_special"},
    {kChat, "add_special_tokens", kBoolean, honoured, "",
     "of vLLM; default true: BOS as the vocabulary asks for, unless the template has written it"},
    {kText, "parse_special", kBoolean, honoured, "",
     "of troupe; default true: control tokens written in a text become their ids; false: they stay text, as text of "
     "strangers should"},
    {kEmbed, "parse_special", kBoolean, honoured, "",
     "of troupe; default false; control tokens written as text become ids"},
});

constexpr auto kFields = [] {
  std::array<Field, kOwnFields.size() + kOtherFields.size()> all{};
  std::ranges::copy(kOwnFields, all.begin());
  std::ranges::copy(kOtherFields, all.begin() + kOwnFields.size());
  return all;
}();

// As the rows say.
static_assert(kMaxDraftTokens == 16 && actors::kMaxDetokenizeIds == 65'536);

struct Required {
  EndpointSet endpoints;
  std::string_view path;
};
// The APIs require `model`, too; here a request without it gets the default model.
constexpr auto kRequired = std::to_array<Required>({{kTurns | kAnthropic, "messages"},
                                                    {kText, "prompt"},
                                                    {kEmbed | kResponses, "input"},
                                                    {kMessages, "max_tokens"},
                                                    {kDetokenize, "tokens"},
                                                    {kTurns | kAnthropic, "messages[].role"},
                                                    {kTurns, "messages[].content[].type"},
                                                    {kAnthropic, "messages[].content[].type"},
                                                    {kResponses, "input[].content[].type"},
                                                    {kAnthropic, "system[].type"},
                                                    {kAnthropic, "thinking.type"},
                                                    {kChat | kText, "response_format.type"},
                                                    {kResponses, "text.format.type"}});

}  // namespace

std::span<const Field> fields() { return kFields; }

const Field* find_field(Endpoint endpoint, std::string_view path) {
  const auto row = std::ranges::find_if(
      kFields, [&](const Field& each) { return (each.endpoints & set_of(endpoint)) != 0 && each.path == path; });
  return row == kFields.end() ? nullptr : &*row;
}

bool is_required(Endpoint endpoint, std::string_view path) {
  return std::ranges::any_of(
      kRequired, [&](const Required& each) { return (each.endpoints & set_of(endpoint)) != 0 && each.path == path; });
}

}  // namespace troupe::ipc::api
