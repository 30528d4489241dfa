/* SPDX-License-Identifier: Apache-2.0 */
/* chat_jinja.h - which part of a rendered conversation is trained.
 *
 * Jinja says nothing of that, so it is found as axolotl finds it, by rendering beginnings of the
 * conversation (of many turns with jinja_starts_text(), which most templates make linear). The text
 * of a trained answer begins where the conversation before it, with add_generation_prompt, ends; it
 * ends with the token that ends the turn, else with the message. So what a template adds in front
 * of an answer (an empty <think></think>) and a call of a tool are trained too, as the model has to
 * write them. What the beginning writes must be what the whole conversation begins with; a template
 * for which that is not so is an error that names the turn. Other trained turns are their message
 * and the token that ends the turn.
 *
 * The text of messages never becomes special tokens, also where the template cut or joined it: the
 * interpreter knows the source of every byte (jinja.h). */
#ifndef HS_DATA_CHAT_JINJA_H
#define HS_DATA_CHAT_JINJA_H

#include "data/chat_text.h"

#endif
