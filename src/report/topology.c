/* SPDX-License-Identifier: Apache-2.0 */
/* topology.c - see topology.h: the texts. Machines are clusters, devices are tables inside them,
 * links are arrows between devices. */
#include "report/topology.h"
#include "report/topology_render.h"

#include "base/buf.h"
#include "base/err.h"
#include "base/mem.h"
#include "file/atomic.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Pale fills with a darker line of the same hue, one for each kind of device in the order in which
 * they come; they repeat after eight. */
static const struct {
	const char *fill, *line;
} palette[] = {
	{ "#dbeafe", "#2563eb" }, { "#dcfce7", "#16a34a" }, { "#ffedd5", "#ea580c" },
	{ "#f3e8ff", "#9333ea" }, { "#cffafe", "#0891b2" }, { "#fee2e2", "#dc2626" },
	{ "#fef9c3", "#a16207" }, { "#fce7f3", "#db2777" },
};

/* "cuda" of "cuda:1" */
static size_t kind_length(const char *backend) { return backend ? strcspn(backend, ":") : 0; }

static bool same_kind(const char *a, const char *b)
{
	return kind_length(a) == kind_length(b) &&
	       (!kind_length(a) || !strncmp(a, b, kind_length(a)));
}

/* Whether this device is the first of its kind: it chooses the colour. */
static bool first_of_kind(const struct topology *t, size_t i)
{
	size_t k = 0;
	while (!same_kind(t->device[k].backend, t->device[i].backend))
		k++;
	return k == i;
}

static size_t colour_of(const struct topology *t, size_t device)
{
	size_t kinds = 0;
	for (size_t i = 0; i < t->ndevice; i++) {
		if (same_kind(t->device[i].backend, t->device[device].backend))
			break;
		kinds += first_of_kind(t, i);
	}
	return kinds % ARRAY_LEN(palette);
}

/* Text inside an HTML-like label, where an empty text would be a syntax error. */
static void put_html(struct buf *b, const char *s)
{
	if (!s || !*s)
		buf_addc(b, ' ');
	for (; s && *s; s++) {
		if (*s == '&')
			buf_adds(b, "&amp;");
		else if (*s == '<')
			buf_adds(b, "&lt;");
		else if (*s == '>')
			buf_adds(b, "&gt;");
		else if (*s == '"')
			buf_adds(b, "&quot;");
		else if ((unsigned char)*s >= 0x20 && *s != 0x7f)
			buf_addc(b, *s);
	}
}

static void layers_text(const struct topology_device *d, char *s, size_t cap)
{
	const char *front = d->front ? "embedding + " : "", *end = d->end ? " + head" : "";
	if (d->stage < 0)
		snprintf(s, cap, "left out");
	else if (d->layers)
		snprintf(s, cap, "%slayers %.60s%s", front, d->layers, end);
	else if (d->last - d->first == 1)
		snprintf(s, cap, "%slayer %lld%s", front, (long long)d->first, end);
	else if (d->last > d->first)
		snprintf(s, cap, "%slayers %lld to %lld%s", front, (long long)d->first,
			 (long long)d->last - 1, end);
	else
		snprintf(s, cap, "%s%s", d->front ? "embedding" : "no layers", end);
}

/* "0.71 of 15.6 GiB" */
static void memory_text(const struct topology_device *d, char *s, size_t cap)
{
	double gib = 1.0 / (1 << 30), need = (double)d->mem_need * gib,
	       total = (double)d->mem_total * gib;
	s[0] = 0;
	if (d->mem_need && d->mem_total)
		snprintf(s, cap, need < 0.995 ? "%.2f of %.1f GiB" : "%.1f of %.1f GiB", need,
			 total);
	else if (d->mem_total)
		snprintf(s, cap, "%.1f GiB", total);
	else if (d->mem_need)
		snprintf(s, cap, need < 0.995 ? "needs %.2f GiB" : "needs %.1f GiB", need);
}

static void facts_text(const struct topology_device *d, char *s, size_t cap)
{
	char memory[64];
	memory_text(d, memory, sizeof memory);
	int n = snprintf(s, cap, "%s", memory);
	if (isfinite(d->share) && d->share < 0.9995 && d->stage >= 0)
		n += snprintf(s + n, cap - (size_t)n, "%s%.0f %% of the microbatches",
			      n ? ", " : "", 100 * d->share);
	if (isfinite(d->busy) && d->stage >= 0)
		snprintf(s + n, cap - (size_t)n, "%sbusy %.0f %%", n ? ", " : "", 100 * d->busy);
}

/* "112 MB/s, 0.3 ms" */
static void link_text(const struct topology_link *l, char *s, size_t cap)
{
	int n = 0;
	s[0] = 0;
	if (isfinite(l->bandwidth) && l->bandwidth > 0) {
		double v = l->bandwidth;
		const char *unit = v >= 1e9 ? "GB/s" : v >= 1e6 ? "MB/s" : "kB/s";
		v /= v >= 1e9 ? 1e9 : v >= 1e6 ? 1e6 : 1e3;
		n = snprintf(s, cap, "%.*f %s", v < 10 ? 1 : 0, v, unit);
	}
	if (isfinite(l->latency)) {
		double us = l->latency * 1e6;
		snprintf(s + n, cap - (size_t)n, us < 100 ? "%s%.0f µs" : "%s%.1f ms",
			 n ? ", " : "", us < 100 ? us : us / 1000);
	}
}

/* A share as a bar of blocks, followed by a text (cells of a table would be stretched to
 * its width). */
static void dot_bar(struct buf *b, double share, const char *colour, const char *text)
{
	enum { BLOCKS = 16 };
	int full = (int)(fmin(fmax(share, 0), 1) * BLOCKS + 0.5);
	buf_addf(b, "<tr><td align=\"left\"><font point-size=\"7\" color=\"%s\">",
		 full ? colour : "#ffffff");
	for (int i = 0; i < BLOCKS; i++)
		buf_adds(b, i && i == full ? "</font><font point-size=\"7\" color=\"#ffffff\">█"
					   : "█");
	buf_adds(b, "</font><font point-size=\"11\" color=\"#374151\">&nbsp;&nbsp;");
	put_html(b, text);
	buf_adds(b, "</font></td></tr>");
}

static void dot_facts(const struct topology_device *d, const char *colour, struct buf *b)
{
	char s[160];
	bool used = d->stage >= 0;
	memory_text(d, s, sizeof s);
	if (used && d->mem_need && d->mem_total) {
		dot_bar(b, (double)d->mem_need / (double)d->mem_total, colour, s);
	} else if (s[0]) {
		buf_adds(b, "<tr><td align=\"left\"><font point-size=\"11\" color=\"#374151\">");
		put_html(b, s);
		buf_adds(b, "</font></td></tr>");
	}
	if (used && isfinite(d->busy)) {
		snprintf(s, sizeof s, "busy %.0f %%", 100 * d->busy);
		dot_bar(b, d->busy, colour, s);
	}
	if (used && isfinite(d->share) && d->share < 0.9995)
		buf_addf(b,
			 "<tr><td align=\"left\"><font point-size=\"11\" color=\"#374151\">%.0f %% "
			 "of the "
			 "microbatches</font></td></tr>",
			 100 * d->share);
}

static void dot_device(const struct topology *t, size_t i, struct buf *b)
{
	const struct topology_device *d = &t->device[i];
	const char *fill = d->stage < 0 ? "#f3f4f6" : palette[colour_of(t, i)].fill;
	const char *line = d->stage < 0 ? "#9ca3af" : palette[colour_of(t, i)].line;
	char layers[160];
	layers_text(d, layers, sizeof layers);
	buf_addf(b,
		 "    d%zu [label=<<table border=\"0\" cellborder=\"0\" cellspacing=\"0\" "
		 "cellpadding=\"3\">"
		 "<tr><td align=\"left\"><font point-size=\"15\" color=\"#111827\"><b>",
		 i);
	put_html(b, d->name && d->name[0] ? d->name : d->backend);
	buf_adds(b, "</b></font></td></tr><tr><td align=\"left\"><font point-size=\"11\" "
		    "color=\"#6b7280\">");
	if (d->id && d->id[0])
		put_html(b, d->id);
	if (d->backend) {
		buf_adds(b, d->id && d->id[0] ? " · " : "");
		put_html(b, d->backend);
	}
	buf_addf(b,
		 "</font></td></tr><tr><td align=\"left\"><font point-size=\"13\" color=\"%s\"><b>",
		 line);
	if (d->stage >= 0)
		buf_addf(b, "stage %d: ", d->stage);
	put_html(b, layers);
	buf_adds(b, "</b></font></td></tr>");
	dot_facts(d, line, b);
	buf_addf(b, "</table>>, fillcolor=\"%s\", color=\"%s\"%s];\n", fill, line,
		 d->stage < 0 ? ", style=\"filled,rounded,dashed\"" : "");
}

/* The colours of the kinds of devices, where there are several. */
static void dot_legend(const struct topology *t, struct buf *b)
{
	size_t kinds = 0;
	for (size_t i = 0; i < t->ndevice; i++)
		kinds += first_of_kind(t, i) && t->device[i].stage >= 0;
	if (kinds < 2)
		return;
	buf_adds(b, "<tr><td align=\"left\"><font point-size=\"12\" color=\"#374151\">");
	for (size_t i = 0; i < t->ndevice; i++)
		if (first_of_kind(t, i) && t->device[i].stage >= 0) {
			char kind[64];
			snprintf(kind, sizeof kind, "%.*s", (int)kind_length(t->device[i].backend),
				 t->device[i].backend ? t->device[i].backend : "");
			buf_addf(b, "<font color=\"%s\">■</font> ", palette[colour_of(t, i)].line);
			put_html(b, kind);
			buf_adds(b, "&nbsp;&nbsp;&nbsp;");
		}
	buf_adds(b, "</font></td></tr>");
}

/* Between rows there is room for the label of a link that goes down, above the machine's name. */
static void dot_head(const struct topology *t, bool rows, struct buf *b)
{
	buf_addf(b,
		 "digraph heteroshard {\n"
		 "  graph [rankdir=LR, fontname=\"DejaVu Sans\", bgcolor=\"white\", pad=0.45, "
		 "nodesep=%s, ranksep=1.0, ",
		 rows ? "1.2" : "0.35");
	buf_adds(b, "compound=true, labelloc=t, "
		    "labeljust=l];\n"
		    "  node [shape=box, style=\"filled,rounded\", fontname=\"DejaVu Sans\", "
		    "penwidth=1.6, margin=\"0.12,0.07\"];\n"
		    "  edge [fontname=\"DejaVu Sans\", fontsize=11, fontcolor=\"#374151\", "
		    "color=\"#4b5563\", penwidth=1.6, "
		    "arrowsize=0.8];\n"
		    "  label=<<table border=\"0\" cellborder=\"0\" cellspacing=\"0\" "
		    "cellpadding=\"2\"><tr><td "
		    "align=\"left\"><font point-size=\"22\" "
		    "color=\"#111827\"><b>");
	put_html(b, t->title);
	buf_adds(b, "</b></font></td></tr>");
	if (t->subtitle) {
		buf_adds(b, "<tr><td align=\"left\"><font point-size=\"13\" color=\"#6b7280\">");
		put_html(b, t->subtitle);
		buf_adds(b, "</font></td></tr>");
	}
	dot_legend(t, b);
	buf_adds(b, "<tr><td> </td></tr></table>>;\n");
}

static void dot_machine(const struct topology *t, size_t m, struct buf *b)
{
	size_t devices = 0;
	buf_addf(b,
		 "  subgraph cluster_%zu {\n    style=\"rounded,filled\"; fillcolor=\"#f9fafb\"; "
		 "color=\"#d1d5db\"; "
		 "penwidth=1.2; margin=16;\n    "
		 "label=<<table border=\"0\" cellborder=\"0\" cellspacing=\"0\" "
		 "cellpadding=\"5\"><tr><td><font "
		 "point-size=\"14\" color=\"#111827\"><b>",
		 m);
	put_html(b, t->machine[m].name);
	buf_adds(b, "</b></font><font point-size=\"12\" color=\"#6b7280\">");
	if (t->machine[m].address) {
		buf_adds(b, "  ");
		put_html(b, t->machine[m].address);
	}
	buf_adds(b, t->machine[m].coordinator ? "  coordinator</font></td></tr></table>>;\n"
					      : " </font></td></tr></table>>;\n");
	for (size_t i = 0; i < t->ndevice; i++)
		if (t->device[i].machine == m) {
			dot_device(t, i, b);
			devices++;
		}
	if (!devices && t->machine[m].coordinator) /* a machine without a node would not be drawn */
		buf_addf(b,
			 "    m%zu [shape=plaintext, style=\"\", fontsize=11, "
			 "fontcolor=\"#6b7280\", label=\"no device of its "
			 "own\"];\n",
			 m);
	buf_adds(b, "  }\n");
}

/* `aside`: the text stands right of the middle of the line, which goes down from row to row. */
static void dot_link(const struct topology_link *l, bool turned, const char *how, bool aside,
		     struct buf *b)
{
	char s[64];
	link_text(l, s, sizeof s);
	buf_addf(b, "  d%zu -> d%zu [dir=both, %s=<%s", turned ? l->to : l->from,
		 turned ? l->from : l->to, how,
		 aside ? "<table border=\"0\" cellborder=\"0\" cellspacing=\"0\"><tr>"
			 "<td width=\"190\"></td><td width=\"130\" align=\"left\">"
		       : "");
	put_html(b, s);
	if (l->transport || l->encrypted) {
		buf_addf(b, "%s<font point-size=\"10\" color=\"#6b7280\">", s[0] ? "<br/>" : "");
		put_html(b, l->transport);
		buf_addf(b, "%s</font>",
			 !l->encrypted  ? ""
			 : l->transport ? ", encrypted"
					: "encrypted");
	}
	buf_adds(b, aside                                  ? "</td></tr></table>>];\n"
		    : s[0] || l->transport || l->encrypted ? ">];\n"
							   : " >];\n");
}

/* Devices in the order of the stages, followed by those that are left out; and the row of each. */
struct rows {
	size_t *order, *row; /* [ndevice]; row: by device */
	size_t n;
};

static void set_rows(const struct topology *t, struct rows *r)
{
	int most = (int)fmax(4, ceil(sqrt(1.6 * (double)t->ndevice))), last = -1;
	size_t count = 0, at = 0;
	for (size_t i = 0; i < t->ndevice; i++)
		last = t->device[i].stage > last ? t->device[i].stage : last;
	for (int stage = 0; stage <= last + 1; stage++)
		for (size_t i = 0; i < t->ndevice; i++)
			if (t->device[i].stage == (stage <= last ? stage : -1))
				r->order[at++] = i;
	r->n = at > 0;
	for (size_t k = 0; k < at; k++) {
		const struct topology_device *d = &t->device[r->order[k]],
					     *before = k ? &t->device[r->order[k - 1]] : d;
		bool left_out = d->stage < 0 && before->stage >= 0,
		     full = count >= (size_t)most && d->machine != before->machine;
		if (k && (left_out || full || count >= 2 * (size_t)most)) {
			r->n++;
			count = 0;
		}
		r->row[r->order[k]] = r->n - 1;
		count++;
	}
}

static bool first_on_machine(const struct topology *t, const struct rows *r, size_t k)
{
	for (size_t i = 0; i < k; i++)
		if (t->device[r->order[i]].machine == t->device[r->order[k]].machine)
			return false;
	return true;
}

/* Rows below each other, the second one from right to left, so that the pipeline winds through the
 * picture. Every row begins anew at the left because the links between rows hold nothing in its
 * place; what is written first comes to stand lowest. */
static void dot_rows(const struct topology *t, const struct rows *r, struct buf *b)
{
	for (size_t k = t->ndevice; k-- > 0;)
		if (first_on_machine(t, r, k))
			dot_machine(t, t->device[r->order[k]].machine, b);
	for (size_t k = 1; k < t->ndevice; k++) {
		size_t x = r->order[k - 1], y = r->order[k];
		if (r->row[x] == r->row[y])
			buf_addf(b, "  d%zu -> d%zu [style=invis, weight=20];\n",
				 r->row[x] % 2 ? y : x, r->row[x] % 2 ? x : y);
	}
	for (size_t i = 0; i < t->nlink; i++) {
		size_t from = r->row[t->link[i].from], to = r->row[t->link[i].to];
		dot_link(&t->link[i], from == to && from % 2,
			 from == to ? "label" : "constraint=false, label", from != to, b);
	}
}

/* Whether the devices of each machine (those that are used, or all) follow each other. Where they
 * do not, Graphviz 2.43 corrupts its memory when labels take part in the layout: there the labels
 * are written beside the finished edges. */
static bool in_turn(const struct topology *t, const struct rows *r, bool left_out_too)
{
	for (size_t k = 1; k < t->ndevice; k++) {
		const struct topology_device *d = &t->device[r->order[k]];
		if ((d->stage >= 0 || left_out_too) &&
		    d->machine != t->device[r->order[k - 1]].machine && !first_on_machine(t, r, k))
			return false;
	}
	return true;
}

/* Machines of which all devices are left out are in a row of their own. */
static void dot_one_row(const struct topology *t, const char *label, bool chain, struct buf *b)
{
	size_t before = t->ndevice;
	for (size_t m = 0; m < t->nmachine; m++)
		dot_machine(t, m, b);
	for (size_t i = 0; chain && i < t->ndevice; i++)
		if (t->device[i].stage < 0) {
			if (before < t->ndevice)
				buf_addf(b, "  d%zu -> d%zu [style=invis];\n", before, i);
			before = i;
		}
	for (size_t i = 0; i < t->nlink; i++)
		dot_link(&t->link[i], false, label, false, b);
}

void topology_dot(const struct topology *t, struct buf *b)
{
	enum { ONE_ROW = 5 };
	struct rows r = { mem_array(t->ndevice, sizeof *r.order),
			  mem_array(t->ndevice, sizeof *r.row), 0 };
	if (!r.order || !r.row) {
		b->failed = true;
		goto out;
	}
	set_rows(t, &r);
	bool many = t->ndevice > ONE_ROW;
	bool all = in_turn(t, &r, true);
	dot_head(t, many && all, b);
	if (many && all)
		dot_rows(t, &r, b);
	else
		dot_one_row(t, !many && in_turn(t, &r, false) ? "label" : "xlabel", all, b);
	buf_adds(b, "}\n");
out:
	mem_free(r.order);
	mem_free(r.row);
}

/* Mermaid needs #quot; and similar names for characters that would end a quoted label. */
static void put_mermaid(struct buf *b, const char *s)
{
	for (; s && *s; s++) {
		if (*s == '"')
			buf_adds(b, "#quot;");
		else if (*s == '<')
			buf_adds(b, "#lt;");
		else if (*s == '>')
			buf_adds(b, "#gt;");
		else if ((unsigned char)*s >= 0x20 && *s != 0x7f)
			buf_addc(b, *s);
	}
}

void topology_mermaid(const struct topology *t, struct buf *b)
{
	buf_adds(b, "---\ntitle: \"");
	for (const char *s = t->title; s && *s; s++)
		if (*s != '"' && *s != '\\' && (unsigned char)*s >= 0x20)
			buf_addc(b, *s);
	buf_adds(b, "\"\n---\nflowchart LR\n");
	for (size_t m = 0; m < t->nmachine; m++) {
		buf_addf(b, "  subgraph m%zu[\"", m);
		put_mermaid(b, t->machine[m].name);
		if (t->machine[m].address) {
			buf_adds(b, " ");
			put_mermaid(b, t->machine[m].address);
		}
		buf_adds(b, t->machine[m].coordinator ? " coordinator\"]\n" : "\"]\n");
		for (size_t i = 0; i < t->ndevice; i++) {
			const struct topology_device *d = &t->device[i];
			char layers[160], facts[160];
			if (d->machine != m)
				continue;
			layers_text(d, layers, sizeof layers);
			facts_text(d, facts, sizeof facts);
			buf_addf(b, "    d%zu[\"<b>", i);
			put_mermaid(b, d->name && d->name[0] ? d->name : d->backend);
			buf_adds(b, "</b><br/>");
			if (d->stage >= 0)
				buf_addf(b, "stage %d: ", d->stage);
			put_mermaid(b, layers);
			if (facts[0]) {
				buf_adds(b, "<br/>");
				put_mermaid(b, facts);
			}
			buf_adds(b, "\"]\n");
		}
		buf_adds(b, "  end\n");
	}
	for (size_t i = 0; i < t->nlink; i++) {
		char s[64];
		link_text(&t->link[i], s, sizeof s);
		if (s[0])
			buf_addf(b, "  d%zu <-->|\"%s\"| d%zu\n", t->link[i].from, s,
				 t->link[i].to);
		else
			buf_addf(b, "  d%zu <--> d%zu\n", t->link[i].from, t->link[i].to);
	}
	for (size_t i = 0; i < t->ndevice; i++) {
		const struct topology_device *d = &t->device[i];
		size_t k = colour_of(t, i);
		if (d->stage < 0)
			buf_addf(b, "  style d%zu fill:#f3f4f6,stroke:#9ca3af,stroke-dasharray:4\n",
				 i);
		else
			buf_addf(b, "  style d%zu fill:%s,stroke:%s\n", i, palette[k].fill,
				 palette[k].line);
	}
}

static int write_text(const char *dir, const char *ending, const struct buf *b, struct err *e)
{
	struct buf path = BUF_INIT;
	TRY(buf_ok(b, e));
	buf_addf(&path, "%s/architecture.%s", dir, ending);
	int rc = buf_ok(&path, e);
	if (rc == 0)
		rc = atomic_write_file(path.p, b->p, b->n, e);
	buf_release(&path);
	return rc;
}

int topology_write(const struct topology *t, const char *dir, const char *extra, struct err *e)
{
	const char *format[] = { "svg", "png", extra && !strcmp(extra, "pdf") ? "pdf" : NULL };
	struct buf dot = BUF_INIT, out = BUF_INIT;
	int rc;
	topology_dot(t, &dot);
	TRYOUT(write_text(dir, "dot", &dot, e));
	topology_mermaid(t, &out);
	TRYOUT(write_text(dir, "mmd", &out, e));
	for (size_t i = 0; i < ARRAY_LEN(format) && format[i]; i++) {
		buf_reset(&out);
		TRYOUT(topology_render(dot.p, format[i], &out, e));
		TRYOUT(write_text(dir, format[i], &out, e));
	}
out:
	buf_release(&dot);
	buf_release(&out);
	return rc;
}
