/* SPDX-License-Identifier: Apache-2.0 */
/* axolotl_chat.h - chat templates that axolotl knows by name (`chat_template: qwen_25`), as Jinja
 * texts of our own. They write what axolotl's write (tests/golden/tokenizer/axolotl.json); those
 * without tools refuse them. `qwen3` begins an answer as Qwen's own template does. */
#ifndef HS_DATA_AXOLOTL_CHAT_H
#define HS_DATA_AXOLOTL_CHAT_H

/* NULL: no such name. */
const char *axolotl_chat(const char *name);
/* Comma-separated names, for messages. */
const char *axolotl_chat_names(void);

#endif
