/* SPDX-License-Identifier: Apache-2.0 */
/* axolotl_chat.c - see axolotl_chat.h. */
#include "data/axolotl_chat.h"

#include "base/mem.h"

#include <string.h>

#define NO_TOOLS                                                                                   \
	"{% if tools %}{{ raise_exception('this template shows no tools: use "                     \
	"tokenizer_default') }}{% endif %}"

#define ALTERNATE                                                                                  \
	"{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"                                    \
	"{{ raise_exception('turns of user and assistant must alternate') }}{% endif %}"

/* The system message, if there is one, in `system`, the other turns in `turns`. */
#define SPLIT_SYSTEM                                                                               \
	"{% set system = none %}{% set turns = messages %}"                                        \
	"{% if messages[0].role == 'system' %}{% set system = messages[0].content %}"              \
	"{% set turns = messages[1:] %}{% endif %}"

#define GEMMA_TURN                                                                                 \
	"{{ '<start_of_turn>' + ('model' if m.role == 'assistant' else m.role) + '\\n' }}"
#define GEMMA_OPEN "{% if add_generation_prompt %}{{ '<start_of_turn>model\\n' }}{% endif %}"

/* What Mistral's have in common: which turns there may be. */
#define MISTRAL                                                                                    \
	NO_TOOLS SPLIT_SYSTEM "{{ bos_token }}{% for m in turns %}"                                \
			      "{% if m.role not in ['user', 'assistant'] %}{{ raise_exception("    \
			      "'only turns of user and assistant, after a system message') }}"     \
			      "{% endif %}" ALTERNATE
/* In v2 and later the system message goes before the last question, if that is the last turn. */
#define MISTRAL_LAST(before, after, answer)                                                        \
	MISTRAL "{% if m.role == 'user' %}{{ '" before "' }}"                                      \
		"{% if loop.last and system is not none %}{{ system + '\\n\\n' }}{% endif %}"      \
		"{{ m.content + '" after "' }}{% else %}"                                          \
		"{{ " answer " + eos_token }}{% endif %}{% endfor %}"

#define QWEN_TOOLS                                                                                 \
	"{{ '# Tools\\n\\nYou may call one or more functions to assist with the user query.\\n"    \
	"\\nYou are provided with function signatures within <tools></tools> XML tags:\\n"         \
	"<tools>' }}{% for tool in tools %}{{ '\\n' + tool | tojson }}{% endfor %}"                \
	"{{ '\\n</tools>\\n\\nFor each function call, return a json object with function name "    \
	"and arguments within <tool_call></tool_call> XML tags:\\n<tool_call>\\n"                  \
	"{\"name\": <function-name>, \"arguments\": <args-json-object>}\\n</tool_call>"            \
	"<|im_end|>\\n' }}"

#define QWEN_RESPONSE                                                                              \
	"{% if loop.first or messages[loop.index0 - 1].role != 'tool' %}{{ '<|im_start|>user' }}"  \
	"{% endif %}{{ '\\n<tool_response>\\n' + m.content + '\\n</tool_response>' }}"             \
	"{% if loop.last or messages[loop.index0 + 1].role != 'tool' %}{{ '<|im_end|>\\n' }}"      \
	"{% endif %}"

static const struct {
	const char *name, *text;
} published[] = {
	{ "gemma", NO_TOOLS
	  "{{ bos_token }}{% for m in messages %}{% if m.role == 'system' %}"
	  "{{ raise_exception('there may be no system message') }}{% endif %}" ALTERNATE GEMMA_TURN
	  "{{ m.content | trim + '<end_of_turn>\\n' }}"
	  "{% endfor %}" GEMMA_OPEN },
	{ "gemma3", NO_TOOLS SPLIT_SYSTEM
	  "{{ bos_token }}{% for m in turns %}" ALTERNATE GEMMA_TURN
	  "{% if loop.first and system is not none %}{{ system + '\\n\\n' }}{% endif %}"
	  "{{ m.content | trim + '<end_of_turn>\\n' }}{% endfor %}" GEMMA_OPEN },
	{ "mistral_v1",
	  MISTRAL "{% if m.role == 'user' %}{{ ' [INST] ' }}"
		  "{% if loop.first and system is not none %}{{ system + '\\n\\n' }}{% endif %}"
		  "{{ m.content + ' [/INST]' }}{% else %}{{ ' ' + m.content + eos_token }}"
		  "{% endif %}{% endfor %}" },
	{ "mistral_v2v3", MISTRAL_LAST("[INST] ", "[/INST]", "' ' + m.content | trim") },
	{ "mistral_v3_tekken", MISTRAL_LAST("[INST]", "[/INST]", "m.content") },
	{ "phi_3", NO_TOOLS "{{ bos_token }}{% for m in messages %}{% if m.role == 'assistant' %}"
			    "{{ m.content + '<|end|>\\n' }}{% elif m.role in ['system', 'user'] %}"
			    "{{ '<|' + m.role + '|>\\n' + m.content + '<|end|>\\n' }}"
			    "{% if m.role == 'user' %}{{ '<|assistant|>\\n' }}{% endif %}"
			    "{% endif %}{% endfor %}" },
	{ "phi_35", NO_TOOLS
	  "{% for m in messages %}{% if m.role in ['user', 'assistant'] or m.role == 'system' "
	  "and m.content %}{{ '<|' + m.role + '|>\\n' + m.content + '<|end|>\\n' }}{% endif %}"
	  "{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% endif %}" },
	{ "qwen_25",
	  "{% set own = messages[0].role == 'system' %}{{ '<|im_start|>system\\n' + (messages[0]."
	  "content if own else 'You are Qwen, created by Alibaba Cloud. You are a helpful "
	  "assistant.') }}{% if tools %}{{ '\\n\\n' }}" QWEN_TOOLS
	  "{% else %}{{ '<|im_end|>\\n' }}{% endif %}"
	  "{% for m in messages %}{% if m.role == 'tool' %}" QWEN_RESPONSE
	  "{% elif not (loop.first and own) %}{{ '<|im_start|>' + m.role }}"
	  "{% if m.content or not m.tool_calls %}{{ '\\n' + m.content }}{% endif %}"
	  "{% if m.role == 'assistant' %}{% for c in m.tool_calls or [] %}"
	  "{% set f = c.function if c.function is defined else c %}"
	  "{{ '\\n<tool_call>\\n{\"name\": \"' + f.name + '\", \"arguments\": ' }}"
	  "{{ f.arguments | tojson }}{{ '}\\n</tool_call>' }}{% endfor %}{% endif %}"
	  "{{ '<|im_end|>\\n' }}{% endif %}{% endfor %}"
	  "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}" },
	{ "qwen3",
	  "{% set own = messages[0].role == 'system' %}{% if tools or own %}"
	  "{{ '<|im_start|>system\\n' }}{% if own %}{{ messages[0].content }}{% endif %}"
	  "{% if tools %}{{ '\\n\\n' if own }}" QWEN_TOOLS
	  "{% else %}{{ '<|im_end|>\\n' }}{% endif %}{% endif %}"
	  /* the last question that is no tool's answer */
	  "{% set ns = namespace(query=messages|length - 1) %}{% set q = namespace(found=false) %}"
	  "{% for m in messages[::-1] %}{% if not q.found and m.role == 'user' and not "
	  "(m.content.startswith('<tool_response>') and m.content.endswith('</tool_response>')) "
	  "%}{% set q.found = true %}{% set ns.query = messages|length - 1 - loop.index0 %}"
	  "{% endif %}{% endfor %}"
	  "{% for m in messages %}{% if m.role == 'tool' %}" QWEN_RESPONSE
	  "{% elif m.role == 'assistant' %}{% set content = m.content or '' %}"
	  "{% set thought = '' %}{% if m.reasoning_content is string %}"
	  "{% set thought = m.reasoning_content %}{% elif '</think>' in content %}"
	  "{% set thought = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1]"
	  ".lstrip('\\n') %}{% set content = content.split('</think>')[-1].lstrip('\\n') %}"
	  "{% endif %}{{ '<|im_start|>assistant\\n' }}"
	  "{% if loop.index0 > ns.query and (loop.last or thought) %}"
	  "{{ '<think>\\n' + thought.strip('\\n') + '\\n</think>\\n\\n' + content.lstrip('\\n') }}"
	  "{% else %}{{ content }}{% endif %}"
	  "{% for c in m.tool_calls or [] %}{{ '\\n' if content or not loop.first }}"
	  "{% set f = c.function if c.function else c %}"
	  "{{ '<tool_call>\\n{\"name\": \"' + f.name + '\", \"arguments\": ' }}"
	  "{{ f.arguments if f.arguments is string else f.arguments | tojson }}"
	  "{{ '}\\n</tool_call>' }}{% endfor %}{{ '<|im_end|>\\n' }}"
	  "{% elif not (loop.first and own) %}{{ '<|im_start|>' + m.role + '\\n' + m.content + "
	  "'<|im_end|>\\n' }}{% endif %}{% endfor %}"
	  "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}" },
};

const char *axolotl_chat(const char *name)
{
	for (size_t i = 0; i < ARRAY_LEN(published); i++)
		if (!strcmp(published[i].name, name))
			return published[i].text;
	return NULL;
}

const char *axolotl_chat_names(void)
{
	return "gemma, gemma3, mistral_v1, mistral_v2v3, mistral_v3_tekken, phi_3, phi_35, "
	       "qwen_25, qwen3";
}
