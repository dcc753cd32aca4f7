"""The words of the Wordle world: the original's vocabulary and the list that clean games use by default."""

from __future__ import annotations

_ORIGINAL = """
panic solar shire proxy point robot prick wince crimp knoll sugar whack mount perky could wrung light those moist shard
pleat aloft skill elder frame humor pause ulcer ultra robin cynic aroma caulk shake dodge swill tacit other thorn trove
"""
ORIGINAL = tuple(_ORIGINAL.split())
"""The 40 words of the original game, in its order."""

_COMMON = """
about above abuse actor acute admit adopt adult after again agent agree ahead alarm album alert alike alive allow alone
along alter amber amend among ample angel anger angle angry ankle apart apple apply apron arena argue arise armor array
arrow aside asset attic audio audit avoid await awake award aware awful bacon badge badly baker basic basil basin batch
beach beard beast begin being bench berry birth black blade blame blank blast blaze blend bless blind blink block blond
bloom blues blunt board boast bonus boost booth bound brain brake brand brass brave bread break breed brick bride brief
bring brisk broad broom brown brush build bunch burst buyer cabin cable camel candy canoe cargo carry carve catch cause
cedar chain chair chalk charm chart chase cheap check cheek cheer chess chest chief child chili chime choir chunk civic
claim clamp clash class clean clear clerk click cliff climb clock clone close cloth cloud clown coach coast cocoa coral
couch cough count court cover crack craft crane crash crate crawl cream creek crest crisp cross crowd crown crude cruel
crumb crush crust curve cycle daily dairy daisy dance dealt debut decay delay depth derby devil diary digit diner dirty
ditch dizzy donor doubt dough dozen draft drain drama drank drawn dream dress dried drift drill drink drive drown dusty
dwarf eager eagle early earth easel eight elbow elect elite empty enemy enjoy enter entry equal equip error essay event
every exact exist extra fable facet faint fairy faith false fancy fault favor feast fence ferry fetch fever fiber field
fiery fifth fifty fight final first flame flash fleet flesh float flock flood floor flour fluid flute focus force forge
forth forty forum found frank fresh fried front frost fruit fudge funny fuzzy gauge genre ghost giant given glass gleam
globe gloom glory glove grace grade grain grand grant grape graph grasp grass grave gravy great greed green greet grief
grill grind groan groom group grove growl grown guard guess guest guide guilt habit hairy handy happy harsh haste hasty
haven heart heavy hedge hello hence honey honor horse hotel hound house hover human hurry ideal image imply index inner
input irony issue ivory jeans jelly jewel joint jolly judge juice juicy kayak knack knead kneel knife knock known koala
label labor lance large laser later laugh layer learn lease least leave ledge legal lemon level lever limit linen liver
lobby local lodge logic loose lorry loyal lucky lunar lunch lyric magic major maker mango maple march marry marsh match
mayor medal media melon mercy merge merit merry metal meter midst might minor minus mixed model money month moral motor
mouse mouth movie muddy music naive nasty naval nerve never newly niece night ninth noble noise noisy north novel nurse
nylon oasis occur ocean offer often olive onion opera orbit order organ otter ought ounce outer owner oxide ozone paint
panel paper party pasta patch patio peace peach pearl pedal penny perch petal phase phone photo piano piece pilot pinch
pitch pizza place plain plane plank plant plate plaza plead pluck plumb polar porch pouch pound power press price pride
prime print prior prize proof proud prove pulse punch pupil puppy purse quack quake quart queen query quest quick quiet
quilt quite quota quote radar radio raise ranch range rapid ratio raven razor reach react ready realm rebel reply reset
rhyme rider ridge rifle right rigid risky rival river roast rocky rogue roomy rough round route royal rugby ruler rumor
rural rusty saint salad salon salty sandy sauce scale scare scarf scene scent scold scoop scope score scout scrap screw
seize sense serve seven shade shaky shape share shark sharp sheep sheet shelf shell shift shine shiny shirt shock shore
short shout shown sight silly since siren sixth sixty skate sleep sleet slice slide slope small smart smell smile smoke
snack snail snake sneak snowy sober solid solve sorry sound south space spade spare spark speak spear speed spell spend
spice spicy spike spill spine spoke spoon sport spray squad squid stack staff stage stain stair stake stale stamp stand
stare start state steak steal steam steel steep steer stern stick stiff still sting stock stone stool store storm story
stove strap straw strip study stuff stump style sunny super swamp swarm sweat sweep sweet swift swing sword syrup table
taste teach tempo tenth thank theft theme there thick thief thing think third three throw thumb tidal tiger tight timer
title toast today token tonic tooth topic torch total touch tough towel tower toxic trace track trade trail train tramp
trash treat trend trial tribe trick tried truck truly trunk trust truth tulip tuner tunic twice twist uncle under union
unite unity until upper upset urban usage usual vague valid value valve vapor vault venue verse video vigor villa vinyl
virus visit vital vivid vocal voice voter vowel wagon waist waste watch water weary weave wedge weigh weird whale wheat
wheel where which while whirl white whole widen width windy witch woman world worry worth would wound wreck wrist write
wrong yacht yearn yeast yield young youth zebra
"""
COMMON = tuple(_COMMON.split())
"""Everyday English words of five letters, in alphabetical order."""
