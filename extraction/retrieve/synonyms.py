"""Words that programs, pages and tables use for each other, and the words of other languages for them."""

from collections.abc import Iterable

# One group a line. A word may stand in several groups.
_GROUPS = """
refused denied rejected forbidden unauthorized prohibited blocked
failed failure error exception fatal failures crashed
succeeded success successful ok passed
dns resolver resolve lookup lookups nslookup
empty none null nil missing
begin begins began start starts started beginning
end ends ended stop stopped finish finished until
duration took elapsed takes ms seconds latency runtime 历时 用时 dauer dauert durée duración
long duration elapsed took ms seconds 多长
price cost costs amount fee charge usd eur 价格 票价 元 preis kosten prix coût precio costo
maximum max limit most upper 最大 höchste maximal máximo
minimum min least lower 最小 mindestens mínimo
quantity qty count amount units 数量 menge anzahl cantidad quantité
number count total num nr 数 anzahl número nombre
average avg mean 平均 durchschnitt promedio moyenne
address addr ip host 地址 adresse dirección
server host node
company vendor manufacturer brand maker supplier organization 公司 firma hersteller empresa marca
discontinued unavailable retired obsolete deprecated
phone telephone tel mobile 电话 telefon teléfono
email mail e-mail 邮箱 correo
user username login account uid 用户 benutzer usuario utilisateur
password passwd pwd passphrase 密码 passwort contraseña
configuration config conf settings options preferences einstellungen configuración
connection connections conn connect connected verbindung conexión connexion
message msg text
memory mem ram rss heap 内存 speicher memoria
directory dir folder path 目录 verzeichnis ordner directorio carpeta
file filename path 文件 datei archivo fichier
version release 版本 ausgabe versión
removed deleted purged unlink delete remove gelöscht eliminado
created added new made inserted
changed modified updated edited geändert modificado
previous prev before
identifier id key uid uuid guid
description desc summary beschreibung descripción
temperature temp
population inhabitants people residents einwohner población habitants 人口
country nation land país pays 国家
city town stadt ciudad ville 城市
capital hauptstadt
author writer creator written autor
title name heading titel título
date day datum fecha 日期
time timestamp zeit uhrzeit hora heure 时间
train zug tren 车次 列车
departure departs 出发 abfahrt salida
arrival arrives 到达 ankunft llegada
seat seats ticket tickets 票 座
warning warn warnings warnung advertencia
exit rc returncode status code
size bytes length größe tamaño taille 大小
license licence licensed lizenz licencia
dependency dependencies requires package packages abhängigkeiten dependencias
test tests spec pruebas
kernel module modules
environment env variable variables
timeout timed deadline expired
percent percentage % ratio rate
weight kg mass
width wide breit breite ancho largeur 宽
height high hoch höhe alto hauteur 高
dimensions size
runtime clock wall elapsed duration
language lang locale
currency usd eur gbp
"""
_BY_WORD: dict[str, list[str]] = {}
for _line in _GROUPS.strip().splitlines():
    for _word in _line.split():
        _BY_WORD.setdefault(_word, []).extend(other for other in _line.split() if other != _word)


def synonyms(words: Iterable[str]) -> tuple[str, ...]:
    """Words that the data may use instead, without the given ones."""
    given = {word.lower() for word in words}
    found = (other for word in given for other in _BY_WORD.get(word, ()))
    return tuple(sorted(other for other in set(found) if other not in given))
