#include <erl_nif.h>
#include <stdlib.h>
#include <string.h>
#include <ctype.h>

struct word { unsigned start, len; char low[28]; };

/* split(Binary) -> {ok, [Word]} | {error, too_long} */
static ERL_NIF_TERM split(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    ErlNifBinary b;
    if (!enif_inspect_binary(env, argv[0], &b))
        return enif_make_badarg(env);
    unsigned max = b.size + 1, n = 0;
    struct word *ws = malloc(max * sizeof *ws);
    memset(ws, 0, max * sizeof *ws);
    for (unsigned i = 0; i < b.size;) {
        while (i < b.size && isspace(b.data[i])) i++;
        unsigned s = i;
        while (i < b.size && !isspace(b.data[i])) i++;
        if (i - s >= sizeof ws[0].low)
            return enif_make_tuple2(env, enif_make_atom(env, "error"), enif_make_atom(env, "too_long"));
        if (i > s) {
            ws[n].start = s; ws[n].len = i - s;
            for (unsigned k = 0; k < i - s; k++) ws[n].low[k] = tolower(b.data[s + k]);
            n++;
        }
    }
    ERL_NIF_TERM list = enif_make_list(env, 0);
    while (n--) {
        ERL_NIF_TERM w;
        memcpy(enif_make_new_binary(env, ws[n].len, &w), ws[n].low, ws[n].len);
        list = enif_make_list_cell(env, w, list);
    }
    free(ws);
    return enif_make_tuple2(env, enif_make_atom(env, "ok"), list);
}

static ErlNifFunc funcs[] = {{"split", 1, split}};
ERL_NIF_INIT(translate_words, funcs, NULL, NULL, NULL, NULL)
